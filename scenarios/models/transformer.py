"""What the models from `transformers` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulator.errors import InvalidInput

if TYPE_CHECKING:
    from types import ModuleType

# Attention by torch's kernel, without the mask tensors that transformers builds while a model is
# exported: an unpadded causal mask is then the kernel's own `is_causal`, as it is in eager runs.
ATTENTION = "hetsim_unmasked_sdpa"


def library(model: str) -> ModuleType:
    """The `transformers` package with :data:`ATTENTION` registered.

    Raises:
        InvalidInput: it is not installed.
    """
    try:
        import transformers
        from transformers.integrations.sdpa_attention import sdpa_attention_forward
    except ImportError as error:
        raise InvalidInput(
            f"Model '{model}' needs the package transformers ({error}); install it with "
            "pip install 'hetsim[models]'"
        ) from None
    transformers.AttentionInterface.register(ATTENTION, sdpa_attention_forward)
    found: Any = transformers
    return found
