"""The steps of the process and format stages in plain Python, a trajectory at a time: what the benchmark compares with.

It follows the same definitions and writes the same rows, so its row counts must be those of the stages. It knows trajectories of
the policy alone, whose questions were not searched.
"""

import hashlib
import json
import math
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from drag_ray import schemas
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.engine.sampling import PRESETS
from drag_ray.format.config import FormatConfig
from drag_ray.format.row_format import load_format
from drag_ray.format.rows import FORMATS, FormatName
from drag_ray.process.config import ProcessConfig

_FILE_NAME = re.compile(r"[\w-]\.(?:pdf|png|jpe?g|tiff?|jsonl|docx?|pptx?|xlsx?|html?)\b", re.IGNORECASE)
_TOLD_RANK = re.compile(r"\b(?:found|evidence|ground truth|gold|relevant)\b[\w ]{0,30}\bat rank [1-9]", re.IGNORECASE)
_LAST_REPLY = get_protocol("tags").final_request
_WORD = re.compile(r"\w+")
_FINE = ("", "duplicate", "near_duplicate")

Turn = dict[str, Any]
Trajectory = dict[str, Any]


def run(source: Path, target: Path) -> dict[str, int]:
    """Read `source/*.parquet`, write `target/<format>.jsonl` and `.parquet`, and return the number of rows of each format."""
    questions: dict[str, list[Trajectory]] = defaultdict(list)
    seen: set[str] = set()
    for path in sorted(source.glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            turns = [schemas.flatten(turn, schemas.TURN_PATHS) for turn in row["turns"]]
            record: dict[str, Any] = schemas.flatten(row, schemas.PATHS) | {"turns": turns}
            if record["error"] or record["split"] != "train" or record["id"] in seen:
                continue
            seen.add(record["id"])
            questions[record["question_id"]].append(score_trajectory(record, ProcessConfig()))
    rows: dict[FormatName, list[dict[str, Any]]] = {name: [] for name in FORMATS}
    for trajectories in questions.values():
        trajectories.sort(key=lambda item: (item["preset"], item["sample_index"]))
        mark_duplicates(trajectories)
        for name, built in build_rows(trajectories, FormatConfig()).items():
            rows[name] += [row for row in built if not tells(row)]
    target.mkdir(parents=True)
    for name, built in rows.items():
        with (target / f"{name}.jsonl").open("w") as lines:
            lines.writelines(json.dumps(row) + "\n" for row in built)
        table = pa.Table.from_pylist(built, schema=load_format(name).schema)
        pq.write_table(table, target / f"{name}.parquet", compression="zstd")
    check_rows(target, {item["id"]: item["messages"] for items in questions.values() for item in items})
    return {name: len(built) for name, built in rows.items()}


def score_trajectory(record: Trajectory, config: ProcessConfig) -> Trajectory:
    """Decode the conversation, score and judge its turns, sum up the trajectory."""
    messages = json.loads(record["messages"])
    depth, best_before = record["depth"], measure(record["question_rank"], record["depth"])
    asked = best_before
    files = {page["file"] for page in record["evidence"]}
    top_k = record["top_k"]
    for turn in record["turns"]:
        place, rank = turn["num_prompt_messages"], turn["evidence_rank"]
        turn["reply"] = messages[place]["content"]
        turn["state"] = hashlib.sha256(json.dumps(messages[:place]).encode()).hexdigest()
        turn["query_key"] = " ".join(turn["query"].split())
        turn["rank_score"] = (top_k - rank + 1) / top_k if rank is not None and rank <= top_k else 0.0
        turn["utility"] = measure(rank, depth) if turn["action"] == "search" and not turn["error"] else 0.0
        turn["found"] = turn["action"] == "search" and turn["rank_score"] > 0 and not turn["error"]
        turn["gain"], turn["improvement"] = turn["utility"] - asked, turn["utility"] - best_before
        best_before = max(best_before, turn["utility"])
        turn["is_late"] = turn["action"] == "search" and _LAST_REPLY in messages[place - 1]["content"]
        turn["drop_reason"] = judge(turn, files)
        turn["is_later"] = any(earlier["action"] == "search" for earlier in record["turns"] if earlier["step"] < turn["step"])
        turn["reward"] = reward_turn(turn, config)
        turn |= {name: record[name] for name in ("question_id", "sample_index", "protocol", "baseline")}
        turn |= {"trajectory_id": record["id"], "messages": messages, "opening": record["turns"][0]["num_prompt_messages"]}
        turn["digests"] = [other["prompt_digest"] for other in record["turns"]]
    searches = [turn for turn in record["turns"] if turn["action"] == "search" and not turn["error"]]
    reward = sum(turn["reward"] for turn in record["turns"])
    best_gain = max((turn["gain"] for turn in searches), default=None)
    first = next((place for place, turn in enumerate(searches) if turn["found"]), None)
    effort = 0.0
    if first is not None:
        position = top_k * first + searches[first]["evidence_rank"]
        effort = 1 - (position - 1) / (len(searches) * top_k)
    return {**record, "messages": messages, "reward": reward, "effort": effort, "best_gain": best_gain}


def measure(rank: int | None, depth: int) -> float:
    """The measure of the evidence at a rank."""
    return 0.0 if rank is None or rank > depth else 1 / math.log2(1 + rank)


def reward_turn(turn: Turn, config: ProcessConfig) -> float:
    """The reward of a reply, with an answer_weight of 0."""
    if turn["action"] == "invalid" or turn["finish_reason"] == "length" or turn["is_late"]:
        return -config.invalid_cost
    if turn["action"] != "search":
        return 0.0
    words = _WORD.findall(re.sub(r"\^[\d.]+", "", turn["query"]).lower())
    repeated = 1 - len(set(words)) / len(words) if words else 0.0
    improvement = max(0.0, turn["improvement"]) - config.search_cost if turn["is_later"] else turn["improvement"]
    return improvement - config.repeat_cost * repeated


def judge(turn: Turn, evidence_files: set[str]) -> str:
    """The reason why nothing should be trained on a reply, empty if it is fine by itself."""
    if turn["error"]:
        return "failed"
    if turn["finish_reason"] == "length":
        return "truncated"
    if turn["is_late"]:
        return "last_reply"
    words = _WORD.findall(turn["reply"])
    trigrams = list(zip(words, words[1:], words[2:], strict=False))
    if len(words) >= 10 and len(set(trigrams)) / len(trigrams) < 0.5:
        return "repetitive"
    if _FILE_NAME.search(turn["query"]) or evidence_files.intersection(turn["query"].split(" ")):
        return "file_name"
    return ""


def mark_duplicates(trajectories: list[Trajectory]) -> None:
    """Mark replies that say the same as an earlier one in the same state, word for word or nearly so."""
    for reason in ("duplicate", "near_duplicate"):
        seen: set[Any] = set()
        for turn in (turn for trajectory in trajectories for turn in trajectory["turns"]):
            said = turn["query_key"] if turn["action"] == "search" else turn["reply"]
            if reason == "near_duplicate":
                said = (" ".join(sorted(set(_WORD.findall(said.lower())))), turn["evidence_rank"])
            key = (turn["state"], turn["action"], said)
            if not turn["drop_reason"] and key in seen:
                turn["drop_reason"] = reason
            elif not turn["drop_reason"]:
                seen.add(key)


def build_rows(trajectories: list[Trajectory], config: FormatConfig) -> dict[FormatName, list[dict[str, Any]]]:
    """The rows of one question, of every format."""
    turns = [turn for trajectory in trajectories for turn in trajectory["turns"]]
    usable = [turn for turn in turns if turn["action"] == "search" and not turn["drop_reason"]]
    targets = [turn for turn in usable if turn["gain"] > config.min_gain]
    best = distinct(sorted(targets, key=by_score), "query_key")
    limit = config.max_searches_per_question
    candidates = distinct(sorted(usable, key=lambda turn: (-turn["gain"], turn["sample_index"])), "state", "query_key")
    first = distinct([turn for turn in usable if turn["step"] == 1], "state", "query_key")
    return {
        "sft_query": [teach(turn, turn["opening"], turn["reasoning"] if turn["step"] == 1 else "") for turn in best[:limit]],
        "sft_trajectory": build_conversations(trajectories, limit),
        "sft_context": build_recoveries(trajectories, best, limit),
        "rejection": build_rejection(trajectories, limit),
        "dpo": build_pairs(candidates, config),
        "reward": [{**pair(turn), "baseline": turn["baseline"], "query": turn["query"], "score": turn["gain"]} for turn in first],
        "rl_steps": build_steps(trajectories, turns),
    }


def build_pairs(candidates: list[Turn], config: FormatConfig) -> list[dict[str, Any]]:
    """The hardest pairs of each chosen search first."""
    pairs: list[tuple[int, int, Turn, Turn]] = []
    for chosen in (turn for turn in candidates if turn["gain"] >= 0):
        others = [turn for turn in candidates if turn["state"] == chosen["state"]]
        worse = [turn for turn in others if chosen["gain"] - turn["gain"] >= config.min_margin - 1e-9]
        pairs += [(hardness, place, chosen, turn) for place, (hardness, turn) in enumerate(enumerate(worse))]
    pairs.sort(key=lambda pair: pair[:2])
    return [
        {
            "prompt": chosen["messages"][: chosen["num_prompt_messages"]],
            "chosen": reply(chosen, chosen["reasoning"]),
            "rejected": reply(rejected, rejected["reasoning"]),
            **origin(chosen),
            "chosen_score": chosen["gain"],
            "rejected_score": rejected["gain"],
            "prompt_digest": chosen["prompt_digest"],
        }
        for _, _, chosen, rejected in pairs[: config.max_pairs_per_question]
    ]


def build_steps(trajectories: list[Trajectory], turns: list[Turn]) -> list[dict[str, Any]]:
    """Every reply that could be had, with its advantage over those of the question in the same state."""
    return [
        {
            "prompt": turn["messages"][: turn["num_prompt_messages"]],
            "completion": [{"role": "assistant", "content": turn["reply"]}],
            **origin(turn),
            "step": turn["step"],
            "num_steps": len(trajectory["turns"]),
            "reward": turn["reward"],
            "trajectory_reward": trajectory["reward"],
            "advantage": compute_advantage(turn, turns),
            "temperature": PRESETS[trajectory["preset"]].temperature,
            "completion_token_ids": turn["completion_token_ids"],
            "completion_logprobs": turn["completion_logprobs"],
            "prompt_digest": turn["prompt_digest"],
        }
        for trajectory in trajectories
        for turn in trajectory["turns"]
        if not turn["error"]
    ]


def compute_advantage(turn: Turn, turns: list[Turn]) -> float:
    """The lead of the turn and those after it over those from the same state on, in reward, if their searches differ."""
    group = [other for other in turns if other["state"] == turn["state"] and not other["error"]]
    rests = [[after for after in turns if is_from(after, other) and not after["error"]] for other in group]
    if len({(other["utility"], sum(after["utility"] for after in rest)) for other, rest in zip(group, rests, strict=True)}) < 2:
        return 0.0
    returns = [sum(after["reward"] for after in rest) for rest in rests]
    return returns[group.index(turn)] - sum(returns) / len(returns)


def is_from(turn: Turn, first: Turn) -> bool:
    """True if a turn is the first or comes after it."""
    return turn["trajectory_id"] == first["trajectory_id"] and turn["step"] >= first["step"]


def build_conversations(trajectories: list[Trajectory], limit: int) -> list[dict[str, Any]]:
    outcomes = []
    for trajectory in trajectories:
        learned = [turn for turn in trajectory["turns"] if turn["improvement"] > 0 and is_target(turn)]
        if learned:
            best = max(learned, key=lambda turn: turn["gain"])
            outcomes.append({**best, "flags": [turn in learned for turn in trajectory["turns"][: best["step"]]]})
    outcomes.sort(key=lambda item: (-item["gain"], item["step"], item["sample_index"]))
    return [
        conversation(item, item["num_prompt_messages"], item["flags"], item["gain"], max(0.1, item["gain"]))
        for item in distinct(outcomes, "query_key")[:limit]
    ]


def build_rejection(trajectories: list[Trajectory], limit: int) -> list[dict[str, Any]]:
    kept, seen = [], set()
    for trajectory in sorted(trajectories, key=lambda item: (-item["reward"], item["sample_index"])):
        queries = tuple(turn["query_key"] for turn in trajectory["turns"] if turn["action"] == "search")
        flags = [turn["drop_reason"] in _FINE and turn["action"] != "invalid" for turn in trajectory["turns"]]
        if (trajectory["best_gain"] or 0.0) > 0 and any(flags) and queries not in seen:
            seen.add(queries)
            kept.append((trajectory, flags))
    return [
        conversation(item["turns"][-1], item["turns"][-1]["num_prompt_messages"], flags, 1.0, 1 / len(kept[:limit]))
        for item, flags in kept[:limit]
    ]


def build_recoveries(trajectories: list[Trajectory], best: list[Turn], limit: int) -> list[dict[str, Any]]:
    states = []
    for trajectory in trajectories:
        searches = [turn for turn in trajectory["turns"] if turn["action"] == "search"]
        for place, turn in enumerate(searches):
            ran = [item for item in searches[:place] if not item["error"]]
            if ran and not turn["drop_reason"] and not any(item["found"] for item in ran) and (turn["improvement"] > 0 or best):
                recovered = turn["improvement"] > 0
                better = {} if recovered else {"query": best[0]["query"], "gain": best[0]["gain"], "reasoning": ""}
                states.append({**turn, **better, "recovered": recovered})
    states.sort(key=lambda turn: (not turn["recovered"], *by_score(turn)))
    return [teach(turn) for turn in distinct(states, "state", "query")[:limit]]


def is_target(turn: Turn) -> bool:
    """True if a reply is a search that is fit to be learned."""
    return turn["action"] == "search" and not turn["drop_reason"]


def tells(row: dict[str, Any]) -> bool:
    """True if an input says at which rank the evidence is."""
    shown = row.get("prompt") or row["messages"]
    return any(message["role"] != "assistant" and _TOLD_RANK.search(message["content"]) for message in shown)


def check_rows(folder: Path, recorded: dict[str, list[dict[str, str]]]) -> None:
    """Read the rows back and compare each input with what was recorded."""
    for path in folder.glob("*.parquet"):
        for row in pq.read_table(path).to_pylist():
            shown = row.get("prompt") or row["messages"]
            if tells(row) or shown != recorded[row["trajectory_id"]][: len(shown)]:
                raise ValueError(f"{path}: {row['trajectory_id']} leaks")


def conversation(turn: Turn, place: int, flags: list[bool], score: float, weight: float) -> dict[str, Any]:
    messages = turn["messages"][: place + 1]
    learned = {"num_prompt_messages": turn["opening"], "train_turns": flags, "prompt_digests": turn["digests"][: len(flags)]}
    return {"messages": messages, **learned, **origin(turn), "score": score, "weight": weight}


def teach(turn: Turn, num_messages: int | None = None, reasoning: str | None = None) -> dict[str, Any]:
    return {**pair(turn, num_messages, reasoning), "score": turn["gain"], "weight": max(0.1, turn["gain"])}


def pair(turn: Turn, num_messages: int | None = None, reasoning: str | None = None) -> dict[str, Any]:
    num_messages = turn["num_prompt_messages"] if num_messages is None else num_messages
    completion = reply(turn, turn["reasoning"] if reasoning is None else reasoning)
    digest = turn["digests"][0 if num_messages == turn["opening"] else turn["step"] - 1]
    return {"prompt": turn["messages"][:num_messages], "completion": completion, **origin(turn), "prompt_digest": digest}


def reply(turn: Turn, reasoning: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": get_protocol(turn["protocol"]).render_search(turn["query"], reasoning)}]


def origin(turn: Turn) -> dict[str, str]:
    return {"question_id": turn["question_id"], "trajectory_id": turn["trajectory_id"]}


def by_score(turn: Turn) -> tuple[float, int, int]:
    """The best first, of equals the earlier."""
    return (-turn["gain"], turn["step"], turn["sample_index"])


def distinct(turns: list[Turn], *keys: str) -> list[Turn]:
    """The first turn of each value of `keys`."""
    kept: dict[Any, Turn] = {}
    for turn in turns:
        kept.setdefault(tuple(turn[key] for key in keys), turn)
    return list(kept.values())
