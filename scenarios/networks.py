"""Access networks by name: the bandwidth of a link may say ``3g``, ``4g`` or ``wifi``.

Mean uplinks as studies of offloading take them, such as C. Hu, W. Bao, D. Wang and F. Liu, *Dynamic adaptive
DNN surgery for inference acceleration on the edge*, INFOCOM 2019, doi:10.1109/INFOCOM.2019.8737614; nobody has
measured them here. What latency they have, and how they vary, is the link's to say.
"""

from __future__ import annotations

from simulator.errors import InvalidInput
from simulator.model.units import parse_bandwidth

NETWORKS = {"3g": "1.1 Mbit/s", "4g": "5.85 Mbit/s", "wifi": "18.88 Mbit/s"}


def link_bandwidth(text: str | float, what: str = "bandwidth") -> float:
    """Bytes per second of a link, given as a quantity or as the name of a network.

    Raises:
        InvalidInput: see :func:`simulator.model.units.parse_bandwidth`; ``what`` names the link.
    """
    known = NETWORKS.get(str(text).strip().lower())
    if known is not None:
        return parse_bandwidth(known, what)
    try:
        return parse_bandwidth(text, what)
    except InvalidInput as error:
        raise InvalidInput(f"{error}; or name a network: {', '.join(NETWORKS)}") from None
