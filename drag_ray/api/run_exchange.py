"""A run to look at (trajectories as they went, training rows, costs); its import, export, push, pull and verification."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drag_ray.api.run_folder import RunFolder
from drag_ray.config import override
from drag_ray.errors import ConfigError
from drag_ray.extras import explain_missing
from drag_ray.pipeline.runner import find_own
from drag_ray.stage_runs.damage import accept_changes, refuse_damage, verify_stages
from drag_ray.stage_runs.store import StageStore, Transfer
from drag_ray.storage.checksums import Damage

if TYPE_CHECKING:
    from drag_ray.engine.models.tokens import Mask
    from drag_ray.feedback.drift import Drift
    from drag_ray.feedback.ledger import Change
    from drag_ray.feedback.trial import Standing
    from drag_ray.format.inspection import Inspection
    from drag_ray.pipeline.cost import StageCost
    from drag_ray.transcripts.listing import Outcome, SortKey
    from drag_ray.transcripts.transcript import Transcript


class RunExchange(RunFolder):
    """A run to look at, and the world around it: other programs, an object store, and the disk that it lies on."""

    def read_transcripts(
        self,
        stage: str = "collect",
        *,
        outcome: "Outcome | None" = None,
        question: str = "",
        id: str = "",
        sort: "SortKey" = "id",
        limit: int = 50,
        name: str = "",
        scope: str = "",
    ) -> "list[Transcript]":
        """Trajectories to be read turn by turn; a notebook shows each as HTML. They are chosen as by `drag-ray show`.

        Args:
            stage: `collect` or `evaluate`.
            outcome: `found`, `not-found` or `errors`; all where nothing is said.
            question: a part of its text, whatever its case.
            id: of a trajectory, or its first part, as of a question.
            sort: `id`, `gain`, `rank`, `turns`, `tokens` or `seconds`.
            limit: how many.

        Raises:
            ConfigError: there is no such outcome or order.
            DataError: there are no such trajectories.
            DamageError: they are of a finished stage, and not what it has written.

        Examples:
            >>> [transcript] = run.read_transcripts("evaluate", sort="rank", limit=1)
            >>> transcript.describe_outcome()
            'found, best rank 1'
        """
        from drag_ray.transcripts.listing import Selection
        from drag_ray.transcripts.show import read_transcripts

        return read_transcripts(self.locate(stage, name, scope), Selection(outcome, question, id, sort, limit))

    @explain_missing()
    def inspect_rows(
        self,
        row_format: str,
        side: str = "train",
        *,
        mask: "Mask" = "assistant",
        samples: int = 5,
        rows: int = 1000,
        name: str = "",
        scope: str = "",
    ) -> "Inspection":
        """An inspection of the training rows of a format: what is learned, lengths, repetitions; `print` shows it.

        Args:
            row_format: as in `format.formats`.
            side: `train` or `validation`.
            mask: what of a learned reply counts, as `finetune.sft.mask`.
            samples: rows to show.
            rows: to count the tokens of, from the first on.

        Raises:
            ArtifactError: the format stage has not finished.
            DamageError: it is not as it was left.
            DataError: it has written no rows of this format.

        Examples:
            >>> inspection = run.inspect_rows("sft_query", samples=1)
            >>> inspection.num_learned < inspection.num_tokens
            True
        """
        from drag_ray.format.inspection import inspect_file, load_tokenizer

        path = self._require("format", name, scope) / row_format / f"{side}.jsonl"
        return inspect_file(path, load_tokenizer(self.config.engine.model), mask, samples, rows)

    def read_costs(self) -> "list[StageCost]":
        """The costs of the finished stages that are known; `forecast` of a collection says what more questions would.

        Raises:
            ArtifactError: it is known of none, or a manifest cannot be read.

        Examples:
            >>> run.read_costs()
            Traceback (most recent call last):
            drag_ray.errors.ArtifactError: runs/small: no finished stage has recorded its cost. Start stages with prices: ...
        """
        from drag_ray.pipeline.cost import read_costs

        return read_costs(self.folder)

    def export_trajectories(
        self, path: str | Path, format: str = "drag", policy: str = "", name: str = "", scope: str = ""
    ) -> int:
        """Write the collected trajectories for another program, or those of a policy of the evaluation.

        Args:
            path: the file or folder to write.
            format: how they are written, as `drag-ray export --to`.
            policy: of the evaluation; those of the collection where nothing is said.

        Returns:
            How many there are.

        Raises:
            ConfigError: there is no such format.
            DataError: there are no such trajectories, the format wants others, or a folder to write stands there already.
            DamageError: they are not what was written.
            SearchIndexError: the format says what is on a page, and the index does not have it.

        Examples:
            >>> run.export_trajectories("trajectories.jsonl") == run.read_trajectories().height
            True
        """
        from drag_ray.process.exchange import export_trajectories

        stage_dir = self.locate("evaluate" if policy else "collect", name, scope)
        refuse_damage(stage_dir, whole=True)
        return export_trajectories(stage_dir / "trajectories", Path(path), format, policy, self.folder / "index")

    def import_trajectories(self, path: str | Path, format: str = "drag", **options: Any) -> dict[str, int]:
        """Make trajectories of another program the finished collect stage of this run; what is none goes to `problems.jsonl`.

        Args:
            path: a file or a folder.
            format: how they are written, as `drag-ray import --from`.
            options: `name` and `scope` of the stage; `agent`, for which a format without conversations has them rebuilt.

        Returns:
            Counts: finished (trajectories that were taken), set_aside, and of what kinds.

        Raises:
            ConfigError: there is no such format or option, or it holds no trajectories.
            DataError: there is nothing at `path`, or no trajectory that can be read.
            ArtifactError: the disk refuses.

        Examples:
            >>> other = drag_ray.open_run("runs/imported")
            >>> other.import_trajectories("trajectories.jsonl")["set_aside"]
            0
            >>> other.read_trajectories().height == run.read_trajectories().height
            True
        """
        from drag_ray.process.exchange import import_trajectories
        from drag_ray.process.interchange_format import load_interchange

        interchange = load_interchange(format)
        if interchange.convert:
            raise ConfigError(f"format {format!r}: holds questions with candidates and no trajectories: import_questions.")
        config = override(self.config, options, sections=("name", "scope", *(("agent",) if interchange.rebuilds else ())))
        return import_trajectories(Path(path), self.folder, find_own("collect", config), config.agent, format)

    def import_questions(self, path: str | Path, format: str = "v_retrver") -> dict[str, int]:
        """Take questions with candidates of their own from another program, as documents and questions for `corpus`.

        They are in the folder of the format in that of the run: `documents/`, `questions.jsonl`, and `problems.jsonl` with what
        was set aside.

        Args:
            path: a file.
            format: how they are written, as `drag-ray import --from`.

        Returns:
            Counts: questions, candidates (distinct ones), set_aside, and of what kinds.

        Raises:
            ConfigError: there is no such format, or it holds no questions.
            DataError: there is no such file, no row of it can be read, or the folder is there already.
            ArtifactError: the disk refuses.

        Examples:
            >>> other.import_questions("candidates.jsonl")
            {'questions': 1, 'candidates': 2, 'set_aside': 0}
        """
        from drag_ray.process.interchange_format import load_interchange

        convert = load_interchange(format).convert
        if convert is None:
            raise ConfigError(f"format {format!r}: holds trajectories and no questions with candidates: import_trajectories.")
        return convert(Path(path), self.folder / format)

    def learn(self, **options: Any) -> dict[str, int]:
        """Turn what people said about the pages that an endpoint has shown them into questions with evidence, in `learned/`.

        Args:
            options: `learn`, a mapping, for this call.

        Returns:
            Counts: questions, left_out, of which reasons, and what of the feedback could not be used.

        Raises:
            DataError: the run has no feedback.
            ArtifactError: the index has not finished, or the disk refuses.

        Examples:
            >>> run.learn(learn={"min_voices": 5})
            Traceback (most recent call last):
            drag_ray.errors.DataError: runs/small/feedback: no feedback. Serve the run with --serve.feedback.enabled.
        """
        from drag_ray.feedback.learned_folder import write_lessons

        return write_lessons(self.folder, override(self.config, options, sections=("learn",)).learn)

    def read_trial(self) -> "Standing":
        """The state of the last trial of a champion and a challenger on an endpoint of this run; `print` shows it.

        Raises:
            DataError: there was none.
            ArtifactError: a file cannot be read.

        Examples:
            >>> run.read_trial()
            Traceback (most recent call last):
            drag_ray.errors.DataError: runs/small/trials/ledger.jsonl: no trial. Serve the run with ...
        """
        from drag_ray.feedback.trial import read_standing

        return read_standing(self.folder)

    def promote(self, force: bool = False) -> "Change":
        """Make the challenger of the trial the champion, which running endpoints take within a second; it is recorded.

        Args:
            force: also where the test has not decided for it.

        Raises:
            ConfigError: no trial goes on, or the test has not decided for the challenger and nothing is forced.
            DataError, ArtifactError: as `read_trial`; the disk refuses.

        Examples:
            >>> run.promote()
            Traceback (most recent call last):
            drag_ray.errors.DataError: runs/small/trials/ledger.jsonl: no trial. Serve the run with ...
        """
        from drag_ray.feedback.trial import promote

        return promote(self.folder, force)

    def roll_back(self) -> "Change":
        """Make the champion who it was before the last promotion; it is recorded.

        Raises:
            ConfigError: nothing was promoted that is not rolled back.
            ArtifactError: the ledger cannot be read or written.

        Examples:
            >>> run.roll_back()
            Traceback (most recent call last):
            drag_ray.errors.ConfigError: --rollback: nothing was promoted ...
        """
        from drag_ray.feedback.trial import roll_back

        return roll_back(self.folder)

    def measure_drift(self) -> "Drift":
        """The change of what people find by the feedback on an endpoint of this run, week by week.

        Raises:
            DataError: the run has no feedback.
            ArtifactError, SearchIndexError: the index has not finished, or a file cannot be read.

        Examples:
            >>> run.measure_drift()
            Traceback (most recent call last):
            drag_ray.errors.DataError: runs/small/feedback: no feedback. Serve the run with --serve.feedback.enabled.
        """
        from drag_ray.feedback.drift import read_drift

        return read_drift(self.folder)

    def verify(self) -> dict[str, tuple[int, int]]:
        """Compare every byte of the finished stages with what was written.

        Returns:
            How many files and bytes each stage has, by its folder.

        Raises:
            ArtifactError: no stage has finished, or a folder cannot be read.
            DamageError: names all that is damaged, with what was found and expected, and what to run.

        Examples:
            >>> num_files, num_bytes = run.verify()["runs/small/index"]
        """
        return verify_stages(self.folder)

    def accept_changes(self, stage: str, name: str = "", scope: str = "") -> list[Damage]:
        """Take the files of a finished stage as they are now for what was written; stages that read it will run again.

        Args:
            stage: as `format`, whose rows may have been filtered by hand.

        Returns:
            What had changed.

        Raises:
            ArtifactError: the stage has not finished, or its manifest or the list of its files are damaged themselves.

        Examples:
            >>> run.accept_changes("collect")
            []
        """
        return accept_changes(self.locate(stage, name, scope))

    def push(self, uri: str = "") -> dict[str, Transfer | None]:
        """Send the finished stages to an object store; what is there is not sent again.

        Args:
            uri: a place for this run alone, as s3://BUCKET/runs/mine; that of `storage.uri` where nothing is said.

        Returns:
            What was moved of each stage, by its address in the run; None where it was there.

        Raises:
            ConfigError: the URI is none, or holds what may be a secret.
            ArtifactError: no stage has finished, or one is not what was written.
            StorageError: the store refuses; what was sent is kept, and not sent again.

        Examples:
            >>> from pathlib import Path
            >>> moved = run.push(Path("store").absolute().as_uri())
            >>> "index" in moved
            True
        """
        return self._open_store(uri).push_run(self.folder)

    def pull(self, uri: str = "", stages: Sequence[str] = ()) -> dict[str, Transfer | None]:
        """Fetch finished stages from an object store into this run; what is there is not fetched again.

        Args:
            uri: where the run was pushed to; `storage.uri` where nothing is said.
            stages: those to fetch with what they were made from, as `finetune` or `finetune/dpo`; all where none are named.

        Returns:
            What was moved of each stage, by its address in the run; None where it was there.

        Raises:
            ConfigError: the URI is none, or holds what may be a secret.
            ArtifactError: the run has a stage of other work, or an unfinished one, in the place of one of these.
            StorageError: there is no such stage, or the store refuses; what was fetched is kept, and not fetched again.
            DamageError: a stage is not what was pushed.

        Examples:
            >>> other = drag_ray.open_run("runs/fetched")
            >>> other.pull(Path("store").absolute().as_uri(), stages=["collect"])["collect"] is None
            False
            >>> other.read_trajectories().equals(run.read_trajectories())
            True
        """
        return self._open_store(uri).pull_run(self.folder, stages)

    def _open_store(self, uri: str) -> StageStore:
        if not uri and not self.config.storage.uri:
            raise ConfigError("no URI was given, and the run has no storage.uri. Give one, for example s3://BUCKET/runs/mine.")
        return StageStore(self.config.storage.model_copy(update={"uri": uri or self.config.storage.uri}))
