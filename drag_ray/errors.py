"""Every error that drag_ray raises on purpose.

    DragRayError
    ├── ConfigError           an option, a configuration file or a combination of options is wrong
    ├── MissingPackageError   a package is not installed that an extra of the installation has
    ├── DataError             an input file, line or column is not what its schema says
    │   └── PageZeroError       a page is given the number 0, where pages are counted from 1
    ├── ArtifactError         a run folder is missing, unfinished, stale or held by another run
    │   ├── DamageError         a file of a finished stage is not what was written
    │   └── StorageError        an object store refuses or does not answer, or what is asked for is not there
    ├── SearchIndexError      the search index cannot be built, opened or asked
    ├── RolloutError          one rollout failed; it is recorded on its trajectory and the run goes on
    │   └── PromptTooLongError  the next prompt does not fit into the model's context; the rollout ends there
    ├── AnswerError           an HTTP answer takes more bytes or time than it may, or cannot be unpacked
    ├── ToolError             a tool could not do what it was called for; it is told to the policy, and the rollout goes on
    ├── EngineDiedError       an engine is gone and answers no more; rollouts do not record it, a new engine takes over
    ├── BudgetError           what replies may cost is spent; the run stops, and goes on with a larger budget
    ├── TooManyFailuresError  more rollouts failed than `max_failure_rate` allows; the run stops
    ├── TrainError            training cannot start or did not finish
    │   ├── NotFiniteError      loss, gradient or weights are infinite or not a number; nothing is learned from that step
    │   └── GpuMemoryError      a batch needs more memory than a GPU has
    └── ServeError            the endpoint cannot start or does not answer

A message says what was got, what was expected and what to do about it.  Each class takes one
message, so that every error survives pickling on its way between Ray processes.
"""


class DragRayError(Exception):
    """Root of the tree: catch this to catch everything that drag_ray raises on purpose."""


class ConfigError(DragRayError, ValueError):
    """An option, a configuration file or a combination of options is wrong."""


class MissingPackageError(DragRayError, ModuleNotFoundError):
    """A package is not installed that an extra of the installation has."""


class DataError(DragRayError, ValueError):
    """An input file, line or column is not what its schema says."""


class PageZeroError(DataError):
    """A page is given the number 0, where pages are counted from 1."""


class ArtifactError(DragRayError):
    """A run folder is missing, unfinished, stale or held by another run."""


class DamageError(ArtifactError):
    """A file of a finished stage is not what was written."""


class StorageError(ArtifactError):
    """An object store refuses or does not answer, or what is asked for is not there."""


class SearchIndexError(DragRayError):
    """The search index cannot be built, opened or asked."""


class RolloutError(DragRayError):
    """One rollout failed; it is recorded on its trajectory and the run goes on."""


class PromptTooLongError(RolloutError):
    """The next prompt does not fit into the model's context; the rollout ends there."""


class AnswerError(DragRayError):
    """An HTTP answer takes more bytes or time than it may, or cannot be unpacked."""


class ToolError(DragRayError):
    """A tool could not do what it was called for; it is told to the policy, and the rollout goes on."""


class EngineDiedError(DragRayError):
    """An engine is gone and answers no more; rollouts do not record it, a new engine takes over."""


class BudgetError(DragRayError):
    """The budget for replies is spent; the run stops, and goes on with a larger budget."""


class TooManyFailuresError(DragRayError):
    """More rollouts failed than `max_failure_rate` allows; the run stops."""


class TrainError(DragRayError):
    """Training cannot start or did not finish."""


class NotFiniteError(TrainError):
    """Loss, gradient or weights are infinite or not a number; nothing is learned from that step."""


class GpuMemoryError(TrainError):
    """A batch needs more memory than a GPU has."""


class ServeError(DragRayError):
    """The endpoint cannot start or does not answer."""
