"""Small texts and Word documents that exhaust who reads them, byte by byte, and a plain Word document to begin with."""

import io
import zipfile

_TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Override PartName="/word/document.xml" '
    'ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/>'
    '<Override PartName="/word/footnotes.xml" '
    'ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"/></Types>'
)
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_RELATIONS = '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{}</Relationships>'
_RELATION = '<Relationship Id="rId1" Type="{}/{}" Target="{}"/>'
_SPACES = (
    'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" '
    'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
)


def build_word(body: str, head: str = "", footnotes: str = "", numbering: str = "", more: str = "") -> bytes:
    """A Word document of the XML of its body and, in front of its root, of its head; `more` are relationships of its own."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", _TYPES)
        archive.writestr("_rels/.rels", _RELATIONS.format(_RELATION.format(_OFFICE, "officeDocument", "word/document.xml")))
        archive.writestr("word/document.xml", f"{head}<w:document {_SPACES}><w:body>{body}</w:body></w:document>")
        relations = "".join(_RELATION.format(_OFFICE, kind, f"{kind}.xml") for kind in ("footnotes", "numbering"))
        archive.writestr("word/_rels/document.xml.rels", _RELATIONS.format(relations + more))
        archive.writestr("word/numbering.xml", f"<w:numbering {_SPACES}>{numbering}</w:numbering>")
        archive.writestr("word/footnotes.xml", f"<w:footnotes {_SPACES}>{footnotes}</w:footnotes>")
    return stream.getvalue()


def build_paragraphs(*texts: str) -> str:
    """The XML of paragraphs."""
    return "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in texts)


def build_entities(depth: int) -> bytes:
    """A Word document of an entity that names ten of the next one, and so on."""
    names = [f'<!ENTITY e0 "{"x" * 100}">']
    names += [f'<!ENTITY e{number} "{f"&e{number - 1};" * 10}">' for number in range(1, depth)]
    return build_word(build_paragraphs(f"&e{depth - 1};"), f"<!DOCTYPE d [{''.join(names)}]>")


def build_outside_entity(url: str) -> bytes:
    """A Word document that asks for a file of the machine that reads it."""
    return build_word(build_paragraphs("&e;"), f'<!DOCTYPE d [<!ENTITY e SYSTEM "{url}">]>')


def build_zip_bomb(num_mib: int) -> bytes:
    """A Word document whose body is a thousand times as large as its file."""
    return build_word(build_paragraphs("word " * (num_mib * 2**20 // 5)))
