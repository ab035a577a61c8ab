"""The training methods by their names. To add one, write a module beside this one (see `Method`) and a line here."""

from drag_ray.config import BaseConfig
from drag_ray.finetune.methods.cross_encoder import CrossEncoder
from drag_ray.finetune.methods.dpo import DPO
from drag_ray.finetune.methods.embed import Embed
from drag_ray.finetune.methods.grpo import GRPO
from drag_ray.finetune.methods.rerank import Rerank
from drag_ray.finetune.methods.reward import RewardModelling
from drag_ray.finetune.methods.sft import SFT


class Methods(BaseConfig):
    """A section of options for each method. The name of the field is the method's, its help text says what it learns from."""

    sft: SFT = SFT()
    """supervised training: replies are learned word for word"""
    dpo: DPO = DPO()
    """preference pairs: of two replies to a prompt the better one becomes the likelier; best with pairs of the policy that is
    trained (engine.model), which was tuned before, and a tenth of the learning_rate"""
    reward: RewardModelling = RewardModelling()
    """a reward model, which writes nothing, and gives the better of two queries the higher number"""
    rerank: Rerank = Rerank()
    """a reranker: it says whether a page answers a question, which orders what searches find (evaluate.rerank, serve.rerank)"""
    cross_encoder: CrossEncoder = CrossEncoder()
    """a small reranker: all weights of an encoder that reads question and page at once, for processors too (evaluate.rerank,
    serve.rerank), with a learning_rate of 2e-5 to 2e-4, the higher the smaller the model"""
    embed: Embed = Embed()
    """an embedding model (embedding.model), whose vectors of a question and of its evidence come close to each other; with a
    learning_rate of 1e-5 to 1e-4 and a batch_size of 32 and more, since the other pages of a batch are what it learns from"""
    grpo: GRPO = GRPO()
    """reinforcement learning from everything that the policy did, in the tokens that it drew; it has to be the policy that is
    trained, with a lower learning_rate, as for dpo"""


METHOD_NAMES: tuple[str, ...] = tuple(Methods.model_fields)
