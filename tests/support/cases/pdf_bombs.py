"""Small PDFs that exhaust who reads them, byte by byte."""


def build_pdf(*objects: bytes) -> bytes:
    """A PDF of numbered objects, of which the first is the catalogue."""
    data, offsets = b"%PDF-1.4\n", []
    for number, item in enumerate(objects, 1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, item)
    entries = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    table = b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, entries)
    return data + table + b"trailer\n<</Root 1 0 R/Size %d>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(data))


def build_self_reference() -> bytes:
    """A form that draws itself twice."""
    head = b"<</Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</F 5 0 R>>>>/Length 11>>"
    return _build_page(b"/F Do", head + b"\nstream\n/F Do /F Do\nendstream")


def build_nested_forms(depth: int, width: int) -> bytes:
    """Forms that each draw the next one `width` times."""
    forms = []
    for number in range(depth):
        content = b"/F Do " * width if number < depth - 1 else b"0 0 m 9 9 l S"
        head = b"<</Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</F %d 0 R>>>>/Length %d>>" % (
            number + 6,
            len(content),
        )
        forms.append(head + b"\nstream\n" + content + b"\nendstream")
    return _build_page(b"/F Do", *forms)


def build_strokes(num_strokes: int) -> bytes:
    """Lines across the page, of dashes that are as short as they are thin."""
    lines = b"612 792 l 0 792 l 612 0 l 0 0 l\n" * (num_strokes // 4)
    return _build_page(b"0.1 w [0.1 0.1] 0 d 0 0 m %s S" % lines, b"null")


def build_page_count(num_pages: int) -> bytes:
    """One page, and a count that says more."""
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]>>"
    return build_pdf(b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count %d>>" % num_pages, page)


def _build_page(content: bytes, *more: bytes) -> bytes:
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</XObject<</F 5 0 R>>>>>>"
    stream = b"<</Length %d>>\nstream\n%s\nendstream" % (len(content), content)
    return build_pdf(b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>", page, stream, *more)
