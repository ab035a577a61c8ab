"""The names of what the questions stage leaves."""

ROWS_NAME = "questions.jsonl"
REJECTED_NAME = "rejected.jsonl"
PAGES_NAME = "left_out_pages.jsonl"
JOURNAL_NAME = "drafts.jsonl"
