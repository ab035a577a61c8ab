"""Views of a run: its trajectories as they went, its training rows and what it cost."""

from typing import TYPE_CHECKING

from drag_ray.api.run_folder import RunFolder
from drag_ray.extras import explain_missing

if TYPE_CHECKING:
    from drag_ray.engine.models.tokens import Mask
    from drag_ray.format.inspection import Inspection
    from drag_ray.pipeline.cost import StageCost
    from drag_ray.transcripts.listing import Outcome, SortKey
    from drag_ray.transcripts.transcript import Transcript


class RunRecords(RunFolder):
    """A run to look at."""

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
            name: of the instance, where the run has several.
            scope: where in the run it is, as `rounds/2`.

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
            name: of the instance of the format stage, where the run has several.
            scope: where in the run it is, as `rounds/2`.

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
            drag_ray.errors.ArtifactError: runs/small: no finished stage has noted what it cost. Start stages with prices: ...
        """
        from drag_ray.pipeline.cost import read_costs

        return read_costs(self.folder)
