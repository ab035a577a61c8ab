"""The names of transformers that are used here, for pyright alone: the package's own file names every model there is,
and reading those took a quarter of its time. A further name is added here, from the module that defines it."""

from transformers.data.data_collator import DataCollatorWithPadding as DataCollatorWithPadding
from transformers.modeling_utils import PreTrainedModel as PreTrainedModel
from transformers.models.auto.configuration_auto import AutoConfig as AutoConfig
from transformers.models.auto.image_processing_auto import AutoImageProcessor as AutoImageProcessor
from transformers.models.auto.modeling_auto import AutoModel as AutoModel
from transformers.models.auto.modeling_auto import AutoModelForCausalLM as AutoModelForCausalLM
from transformers.models.auto.modeling_auto import AutoModelForImageTextToText as AutoModelForImageTextToText
from transformers.models.auto.modeling_auto import AutoModelForSequenceClassification as AutoModelForSequenceClassification
from transformers.models.auto.processing_auto import AutoProcessor as AutoProcessor
from transformers.models.auto.tokenization_auto import AutoTokenizer as AutoTokenizer
from transformers.models.bert.configuration_bert import BertConfig as BertConfig
from transformers.models.bert.modeling_bert import BertForSequenceClassification as BertForSequenceClassification
from transformers.models.bert.modeling_bert import BertModel as BertModel
from transformers.models.clip.configuration_clip import CLIPConfig as CLIPConfig
from transformers.models.clip.image_processing_clip import CLIPImageProcessor as CLIPImageProcessor
from transformers.models.clip.modeling_clip import CLIPModel as CLIPModel
from transformers.models.llama.configuration_llama import LlamaConfig as LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM as LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaForSequenceClassification as LlamaForSequenceClassification
from transformers.models.mistral.configuration_mistral import MistralConfig as MistralConfig
from transformers.models.mixtral.configuration_mixtral import MixtralConfig as MixtralConfig
from transformers.models.qwen2.configuration_qwen2 import Qwen2Config as Qwen2Config
from transformers.models.qwen2.modeling_qwen2 import Qwen2ForCausalLM as Qwen2ForCausalLM
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLConfig as Qwen3VLConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLForConditionalGeneration as Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor as Qwen3VLProcessor
from transformers.processing_utils import ProcessorMixin as ProcessorMixin
from transformers.tokenization_utils_base import PreTrainedTokenizerBase as PreTrainedTokenizerBase
from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast as PreTrainedTokenizerFast
from transformers.trainer import Trainer as Trainer
from transformers.trainer_callback import PrinterCallback as PrinterCallback
from transformers.trainer_callback import TrainerCallback as TrainerCallback
from transformers.trainer_utils import set_seed as set_seed
from transformers.training_args import TrainingArguments as TrainingArguments
from transformers.utils.quantization_config import GgufConfig as GgufConfig
