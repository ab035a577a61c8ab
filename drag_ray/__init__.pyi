from drag_ray import errors as errors
from drag_ray.api.agent import Agent as Agent
from drag_ray.api.frames import read_results as read_results
from drag_ray.api.frames import read_trajectories as read_trajectories
from drag_ray.api.report import Report as Report
from drag_ray.api.report import compare as compare
from drag_ray.api.report import score as score
from drag_ray.api.run import Run as Run
from drag_ray.api.run import load_reward_model as load_reward_model
from drag_ray.api.run import open_run as open_run
from drag_ray.messages import show_messages as show_messages

__version__: str
__all__ = [
    "Agent",
    "Report",
    "Run",
    "__version__",
    "compare",
    "errors",
    "load_reward_model",
    "open_run",
    "read_results",
    "read_trajectories",
    "score",
    "show_messages",
]
