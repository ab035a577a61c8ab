"""The finetune stage on a local Ray: a model of two layers with random weights, trained to write one query."""

import itertools
import json
import math
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from embedded_tokenizer import VOCABULARY
from huggingface_hub import ModelCard
from nano_training import (
    CHECKPOINT_STEPS,
    kill_a_worker_after_the_first_checkpoint,
    make_config,
    make_nano_model,
    say,
    train_alone,
    write_rows,
    write_split,
)
from peft import PeftModel
from process_environments import REPORTS_OFF
from transformers import AutoModelForCausalLM, AutoTokenizer

from drag_ray.agent.record import RECORD_NAME
from drag_ray.engine.encoders.reranker import load_reranker
from drag_ray.engine.encoders.reward_model import RewardModel
from drag_ray.engine.models.adapter import check_adapter_fits, check_adapter_writes, read_base_model
from drag_ray.engine.models.pretrained import load_reward_model
from drag_ray.errors import DataError, NotFiniteError, TrainError
from drag_ray.finetune.methods.grpo import GRPO
from drag_ray.finetune.outputs.publication import publish_adapter
from drag_ray.finetune.training_folder import Description, find_reranker
from drag_ray.pipeline.runner import run_code
from drag_ray.pipeline.stages import STAGES
from drag_ray.search.config import RerankConfig
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity, compute_file_fingerprint

pytestmark = pytest.mark.usefixtures("local_ray")

NUM_TRAIN_ROWS = 240
NUM_STEPS = 120
BROKEN_ROW = 5  # the last of eight to be drawn, and in the last of two workers' four steps


@pytest.fixture(scope="module")
def nano_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_nano_model(tmp_path_factory.mktemp("nano"), hidden_size=32)


def open_folder(run_dir: Path) -> StageFolder:
    return StageFolder(run_dir / "finetune", Identity("finetune", {}, {}))


def publish(run_dir: Path, model: Path, counts: dict[str, int], options: dict[str, Any]) -> Path:
    """The folder of the adapter, as the stage publishes what `train_alone` has trained."""
    described = Description(make_config(run_dir, model, **options).finetune, counts, {}, None)
    (run_dir / "finetune").mkdir()
    publish_adapter(run_dir / "adapter", str(model), described, None, run_dir / "finetune")
    return run_dir / "finetune" / "adapter"


def test_a_killed_worker_goes_on_from_its_checkpoint_and_the_adapter_has_learned(
    tmp_path: Path, nano_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(tmp_path, NUM_TRAIN_ROWS)
    config = make_config(tmp_path, nano_model, sft={"packing": True})
    killed: list[dict[str, str]] = []
    killer = threading.Thread(target=kill_a_worker_after_the_first_checkpoint, args=(tmp_path, killed))
    killer.start()
    with open_folder(tmp_path) as folder:
        counts = run_code(STAGES["finetune"], config, folder)
    killer.join()
    assert killed[0].items() >= REPORTS_OFF.items()
    printed = "".join(capsys.readouterr())
    assert printed.count(f"finetune step 1/{NUM_STEPS}: loss") == 1  # the second worker did not begin at the beginning
    assert f"finetune step {NUM_STEPS}/{NUM_STEPS}: loss" in printed

    curve = [json.loads(line) for line in (tmp_path / "finetune" / "curve.jsonl").read_text().splitlines()]
    assert [point["step"] for point in curve if "loss" in point] == list(range(1, NUM_STEPS + 1))  # each step once, none lost
    assert [point["step"] for point in curve if "eval_loss" in point] == list(range(0, NUM_STEPS + 1, CHECKPOINT_STEPS))
    assert all(before["tokens"] <= after["tokens"] for before, after in itertools.pairwise(curve))
    assert counts["rows"] == NUM_TRAIN_ROWS
    assert counts["steps"] == NUM_STEPS
    assert counts["attention"].startswith("sdpa_by_row, torch ")
    assert counts["eval_loss_before"] > math.log(VOCABULARY)  # it knows nothing
    assert counts["eval_loss_after"] < 8.0  # it has learned the one query
    _check_the_merged_model_writes_like_base_and_adapter(nano_model, tmp_path / "finetune")
    card = ModelCard.load(tmp_path / "finetune" / "adapter" / "README.md")
    assert compute_file_fingerprint(tmp_path / "finetune" / "adapter" / "adapter_model.safetensors") in card.text
    assert not (tmp_path / "finetune" / "adapter" / RECORD_NAME).exists()  # nobody knows how such rows were collected

    other = make_nano_model(tmp_path / "other", hidden_size=48)
    with pytest.raises(TrainError, match=r"hidden size 32.*hidden size 48"):
        check_adapter_fits(read_base_model(str(other)), tmp_path / "finetune" / "adapter")


@pytest.mark.slow  # unit/finetune/test_own_rows.py reads each format, and says that the stage needs no other
def test_conversations_of_ones_own_are_learned_without_a_stage_before(tmp_path: Path, nano_model: Path) -> None:
    turns = [{"from": "human", "value": "Where is thing?"}, {"from": "gpt", "value": "<search>thing</search>"}]
    source = tmp_path / "mine.jsonl"
    source.write_text((json.dumps({"conversations": turns}) + "\n") * 8)
    config = make_config(tmp_path, nano_model, data=str(source), validation_data=str(source), epochs=10)
    with open_folder(tmp_path) as folder:
        counts = run_code(STAGES["finetune"], config, folder)
    assert (counts["rows"], counts["validation_rows"]) == (8, 8)
    assert counts["eval_loss_after"] < counts["eval_loss_before"] - 2
    assert (tmp_path / "finetune" / "adapter").is_dir()
    assert not (tmp_path / "format").exists()


def _check_the_merged_model_writes_like_base_and_adapter(base_dir: Path, finetune_dir: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(finetune_dir / "merged")
    assert tokenizer.chat_template == AutoTokenizer.from_pretrained(base_dir).chat_template
    input_ids = tokenizer("Where is thing 7?", return_tensors="pt")["input_ids"]
    base = AutoModelForCausalLM.from_pretrained(base_dir, dtype=torch.float32).eval()
    merged = AutoModelForCausalLM.from_pretrained(finetune_dir / "merged", dtype=torch.float32).eval()
    with torch.no_grad():
        base_logits = base(input_ids).logits
        adapted_logits = PeftModel.from_pretrained(base, str(finetune_dir / "adapter")).eval()(input_ids).logits
        merged_logits = merged(input_ids).logits
    torch.testing.assert_close(merged_logits, adapted_logits, atol=1e-4, rtol=1e-4)
    assert (adapted_logits - base_logits).abs().max() > 0.1


@pytest.mark.slow
def test_a_killed_training_of_all_weights_goes_on_and_comes_to_a_whole_model(
    tmp_path: Path, nano_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(tmp_path, NUM_TRAIN_ROWS)
    arguments = {"report_to": "tensorboard"}
    config = make_config(tmp_path, nano_model, parts=("language",), learning_rate=2e-3, arguments=arguments)
    killer = threading.Thread(target=kill_a_worker_after_the_first_checkpoint, args=(tmp_path, []))
    killer.start()
    with open_folder(tmp_path) as folder:
        counts = run_code(STAGES["finetune"], config, folder)
    killer.join()
    printed = "".join(capsys.readouterr())
    assert printed.count(f"finetune step 1/{NUM_STEPS}: loss") == 1  # the second worker did not begin at the beginning
    assert counts["eval_loss_before"] > math.log(VOCABULARY) > 8.0 > counts["eval_loss_after"]
    base, trained = (AutoModelForCausalLM.from_pretrained(path) for path in (nano_model, tmp_path / "finetune" / "model"))
    changed = [name for name, weight in trained.named_parameters() if not weight.equal(base.get_parameter(name))]
    assert changed == [name for name, _ in base.named_parameters()]
    assert not any((tmp_path / "finetune" / name).exists() for name in ("adapter", "merged"))
    assert list((tmp_path / "finetune" / "tensorboard").iterdir())


def test_rows_that_cannot_be_learned_are_refused_without_a_restart(tmp_path: Path, nano_model: Path) -> None:
    write_rows(tmp_path, 4)
    with open_folder(tmp_path) as folder, pytest.raises(DataError, match=r"all 4 rows have more than finetune.max_length = 16"):
        run_code(STAGES["finetune"], make_config(tmp_path, nano_model, max_length=16), folder)


@pytest.mark.slow
def test_a_training_that_is_not_finite_goes_on_once_from_its_checkpoint_and_publishes_nothing(
    tmp_path: Path, nano_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = build_steps(nano_model, 8)
    steps[BROKEN_ROW] |= {"advantage": 1e39, "trajectory_id": "q7-0"}
    write_split(tmp_path, "rl_steps", steps, 8)
    config = make_config(tmp_path, nano_model, method="grpo", learning_rate=1e-3, checkpoint_steps=1, batch_size=1, num_workers=2)
    with (
        open_folder(tmp_path) as folder,
        pytest.raises(
            NotFiniteError, match=rf"finetune step 4: loss -inf.*jsonl: (\d, )?{BROKEN_ROW + 1} \(q7-0\)(, \d)?\. "
        ) as caught,
    ):
        run_code(STAGES["finetune"], config, folder)
    assert ", " in str(caught.value).partition("jsonl:")[2].partition(".")[0]  # the row of the other worker
    printed = "".join(capsys.readouterr())
    assert printed.count("finetune: resuming from the last checkpoint, once. finetune step") == 1
    assert printed.count("finetune step 1/4: loss") == 1  # the second try did not begin at the beginning
    assert not any((tmp_path / "finetune" / name).exists() for name in ("adapter", "merged", "curve.jsonl"))


def test_a_reward_model_scores_the_better_query_higher(tmp_path: Path, nano_model: Path) -> None:
    scores = {"<search>thing</search>": 1.0, "<search>thing there</search>": 0.5, "<search>somewhere else entirely</search>": 0.0}
    rows = [
        {"prompt": say("user", f"Where is thing {number}?"), "completion": say("assistant", query), "score": score}
        for number in range(16)
        for query, score in scores.items()
    ]
    alone = {**rows[0], "prompt": say("user", "Where is nothing?")}
    write_split(tmp_path, "reward", [*rows[:39], alone, *rows[39:]], 40)
    options = {"method": "reward", "epochs": 3, "learning_rate": 5e-3, "batch_size": 4}
    counts, curve = train_alone(tmp_path, nano_model, **options)
    assert (counts["rows"], counts["rows_without_advantage"], counts["validation_rows"]) == (39, 1, 9)
    assert curve[-1]["eval_pair_accuracy"] == 1
    adapter_dir, merged_dir = publish(tmp_path, nano_model, counts, options), tmp_path / "finetune" / "merged"
    conversations = [[*row["prompt"], *row["completion"]] for row in rows[39:]]
    rewards = _compute_rewards(nano_model, adapter_dir, conversations).view(-1, len(scores))
    pairs = torch.stack([rewards[:, better] - rewards[:, worse] for better, worse in itertools.combinations(range(3), 2)])
    expected = -torch.nn.functional.logsigmoid(pairs).mean().item()
    assert curve[-1]["eval_loss"] == pytest.approx(expected, rel=1e-3)
    assert curve[-1]["eval_loss"] < 0.3 < curve[0]["eval_loss"]

    found = RewardModel(merged_dir).score(rows[-1]["prompt"], list(scores))
    assert found == pytest.approx(rewards[-1].tolist(), abs=0.2)  # in bfloat16
    with pytest.raises(TrainError, match=r"adapter: a reward model, which scores queries and writes none"):
        check_adapter_writes(adapter_dir)


def _compute_rewards(base_dir: Path, adapter_dir: Path, conversations: list[list[dict[str, str]]]) -> torch.Tensor:
    """Conversation by conversation, as transformers renders and reads it."""
    tokenizer = AutoTokenizer.from_pretrained(base_dir)
    base = load_reward_model(base_dir, "float32")
    model = PeftModel.from_pretrained(base, str(adapter_dir)).eval()
    with torch.no_grad():
        encoded = (tokenizer.apply_chat_template(messages, return_tensors="pt", return_dict=True) for messages in conversations)
        return torch.cat([model(input_ids=inputs["input_ids"]).logits[0] for inputs in encoded])


def test_a_reranker_learns_the_answer_that_it_is_then_asked_for(tmp_path: Path, nano_model: Path) -> None:
    rows = [
        {"question": f"Where is thing {number}?", "passage": f"Thing {number} is {place}.", "is_evidence": place == "here"}
        for number in range(42)
        for place in ("here", "lost")
    ]
    write_split(tmp_path, "relevance", rows, 80)
    options = {"method": "rerank", "merge": False}
    counts, curve = train_alone(tmp_path, nano_model, **options)
    assert (counts["rows"], counts["validation_rows"], counts["trained_tokens"]) == (40, 2, 80)
    assert curve[0]["eval_loss"] > 0.4
    assert curve[-1]["eval_loss"] < 0.2
    adapter_dir = publish(tmp_path, nano_model, counts, options)
    assert find_reranker(tmp_path / "finetune") == adapter_dir
    here, lost = load_reranker(RerankConfig(model=str(adapter_dir))).score(
        "Where is thing 41?", ["Thing 41 is here.", "Thing 41 is lost."]
    )
    assert here > lost + 1
    assert "tells pages that answer a question from others" in (adapter_dir / "README.md").read_text()
    with pytest.raises(TrainError, match="adapter: a reranker, which judges pages and writes no query"):
        check_adapter_writes(adapter_dir)


@pytest.mark.slow
def test_steps_with_an_advantage_become_likelier_and_those_without_less_likely(tmp_path: Path, nano_model: Path) -> None:
    held_out = write_steps(tmp_path, nano_model, num_rows=32)
    options = {"method": "grpo", "grpo": GRPO(clip_range=0.5)}
    counts, curve = train_alone(tmp_path, nano_model, epochs=2, learning_rate=1e-3, batch_size=4, **options)
    assert (counts["rows"], counts["rows_without_advantage"]) == (32, 1)
    adapter_dir, settings = tmp_path / "adapter", options["grpo"]
    assert curve[0]["eval_loss"] == pytest.approx(_compute_policy_loss(nano_model, None, held_out, settings), rel=1e-4)
    expected = _compute_policy_loss(nano_model, adapter_dir, held_out, settings)
    assert curve[-1]["eval_loss"] == pytest.approx(expected, rel=1e-3)
    assert expected < curve[0]["eval_loss"] - 0.1
    tokenizer, before, now = _load_policies(nano_model, adapter_dir)
    for step in held_out:
        scores = [_score(model, tokenizer, step["prompt"], step["completion_token_ids"]).mean() for model in (before, now)]
        assert (scores[1] > scores[0]) == (step["advantage"] > 0)
    assert all(point["kl"] >= 0 for point in curve if "loss" in point)


def test_steps_of_which_none_is_better_are_refused(tmp_path: Path, nano_model: Path) -> None:
    step = {"prompt": say("user", "Where?"), "completion": say("assistant", "there"), "completion_token_ids": [1]}
    write_split(tmp_path, "rl_steps", [{**step, "advantage": 0.0}] * 3, 2)
    with pytest.raises(DataError, match=r"train\.jsonl: in all 2 rows .* earned the same.*collect\.samples_per_question"):
        train_alone(tmp_path, nano_model, method="grpo")


def write_steps(run_dir: Path, model: Path, num_rows: int) -> list[dict[str, Any]]:
    """Write steps with one reply that is better than another, a step without advantage, and four for validation: these."""
    steps = build_steps(model, num_rows + 4)
    write_split(run_dir, "rl_steps", [{**steps[0], "advantage": 0.0}, *steps], num_rows + 1)
    return steps[num_rows:]


def build_steps(model: Path, num_rows: int) -> list[dict[str, Any]]:
    """Of each question two steps, the second of which is better than the first."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    steps = []
    for number in range(num_rows):
        query, advantage = ("thing", 0.9) if number % 2 else ("somewhere else entirely", -1.1)
        reply = f"<search>{query}</search>"
        steps.append(
            {
                "prompt": say("user", f"Where is thing {number // 2}?"),
                "completion": say("assistant", reply),
                "completion_token_ids": _encode(tokenizer, reply),
                "advantage": advantage,
            }
        )
    return steps


def _compute_policy_loss(base_dir: Path, adapter_dir: Path | None, steps: list[dict[str, Any]], settings: GRPO) -> float:
    """The mean over all tokens of the clipped surrogate and the divergence, token by token."""
    tokenizer, before, now = _load_policies(base_dir, adapter_dir)
    losses = []
    for step in steps:
        scores = [_score(model, tokenizer, step["prompt"], step["completion_token_ids"]).tolist() for model in (before, now)]
        for old, new in zip(*scores, strict=True):
            ratio, low, high = math.exp(new - old), 1 - settings.clip_range, 1 + settings.clip_range
            gain = min(ratio * step["advantage"], min(max(ratio, low), high) * step["advantage"])
            losses.append(settings.kl_weight * (1 / ratio + math.log(ratio) - 1) - gain)
    return sum(losses) / len(losses)


def _load_policies(base_dir: Path, adapter_dir: Path | None) -> tuple[Any, Any, Any]:
    """The tokenizer, the policy before and the policy now, which without an adapter is the same."""
    before, now = (AutoModelForCausalLM.from_pretrained(base_dir, dtype=torch.float32).eval() for _ in range(2))
    now = PeftModel.from_pretrained(now, str(adapter_dir)).eval() if adapter_dir else now
    return AutoTokenizer.from_pretrained(base_dir), before, now


def _encode(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def _score(model: Any, tokenizer: Any, prompt: list[dict[str, str]], reply_ids: list[int]) -> torch.Tensor:
    """Log-probabilities of the tokens of a reply."""
    prompt_ids = _encode(tokenizer, tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False))
    with torch.no_grad():
        logits = model(torch.tensor([prompt_ids + reply_ids])).logits[0, len(prompt_ids) - 1 : -1]
    return logits.log_softmax(-1).gather(1, torch.tensor(reply_ids)[:, None])[:, 0]
