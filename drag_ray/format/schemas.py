"""The columns of training rows, as TRL spells them: one schema for each kind of row."""

import pyarrow as pa

_ORIGIN = [("question_id", pa.string()), ("trajectory_id", pa.string())]

MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
"""A list of messages."""

MESSAGES_WITH_IMAGES = pa.list_(
    pa.struct([("role", pa.string()), ("content", pa.list_(pa.struct([("type", pa.string()), ("text", pa.string())])))])
)
"""A list of messages of text parts and image parts; the images themselves are named in order in the column `images`."""

PROMPT_COMPLETION = pa.schema(
    [("prompt", MESSAGES), ("completion", MESSAGES), *_ORIGIN, ("score", pa.float64()), ("weight", pa.float64())]
)
"""A prompt and the reply to learn; `score` is the rank score of its query, `weight` what the row counts in the loss."""

CONVERSATION = pa.schema(
    [
        ("messages", MESSAGES),
        ("num_prompt_messages", pa.int32()),
        ("train_turns", pa.list_(pa.bool_())),
        *_ORIGIN,
        ("score", pa.float64()),
        ("weight", pa.float64()),
    ]
)
"""A conversation: `train_turns` says for each assistant message from `num_prompt_messages` on whether it is learned."""

PREFERENCE = pa.schema(
    [
        *(("prompt", MESSAGES), ("chosen", MESSAGES), ("rejected", MESSAGES)),
        *_ORIGIN,
        *(("chosen_score", pa.float64()), ("rejected_score", pa.float64())),
    ]
)
"""Two replies to one prompt, the better one first."""

LABELLED = pa.schema([("prompt", MESSAGES), ("completion", MESSAGES), ("label", pa.bool_()), *_ORIGIN, ("score", pa.float64())])
"""A reply that is wanted or not."""

SCORED_QUERY = pa.schema(
    [("prompt", MESSAGES), ("completion", MESSAGES), *_ORIGIN, ("query", pa.string()), ("score", pa.float64())]
)
"""A query and its rank score."""

REWARDED_STEP = pa.schema(
    [
        *(("prompt", MESSAGES), ("completion", MESSAGES)),
        *_ORIGIN,
        *(("step", pa.int32()), ("num_steps", pa.int32())),
        *(("reward", pa.float64()), ("trajectory_reward", pa.float64()), ("advantage", pa.float64())),
        ("completion_token_ids", pa.list_(pa.int32())),
    ]
)
"""One reply of a trajectory, with its own reward, the whole trajectory's, and what that is above the question's other ones."""
