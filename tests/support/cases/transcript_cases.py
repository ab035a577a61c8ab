"""Rollouts of every kind."""

from factories import EVIDENCE, asked_at, build_answer, build_question, build_search, build_trajectory, build_turn

SCRIPT = "</pre><script>alert(1)</script>"
OTHER = build_question(id="q2", question="What drives the tail rotor?")
FOUND = build_trajectory(
    build_search("blade", 7, reasoning="It turns.\x1b[2J"),
    build_turn(raw_text=SCRIPT),
    build_search("rotor speed", 2, finish_reason="length"),
    build_answer(f"340 {SCRIPT}", citations=(EVIDENCE,)),
    id="q1/default/0",
    **asked_at(7),
)
MISSED = build_trajectory(build_search("tail"), question=OTHER, id="q2/default/0", duration_s=9.0)
BY_FIRST = build_trajectory(build_search("rotor", 1), id="q1/default/1", **asked_at(1))
ORDERED = build_trajectory(
    build_search("[3, 1, 2]", 2),
    build_search("[]", 3),
    build_turn(raw_text="the first"),
    id="q1/default/2",
    task="rerank",
    protocol="ranking",
    **asked_at(7),
)
FAILED = build_trajectory(id="q10/default/0", question=build_question(id="q10"), error="RolloutError: engine gone")
