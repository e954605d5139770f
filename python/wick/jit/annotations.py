"""Types that annotations of scripted functions name."""

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: F401, UP035  these very names are imported from here

from .._jit_internal import Future  # noqa: F401
from .._names import getter as _getter


class BroadcastingListCls:
    """BroadcastingList2[int]: a list of two, for which one number may stand."""

    def __getitem__(self, types):
        return None


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = BroadcastingListCls()
BroadcastingList4 = BroadcastingList5 = BroadcastingList6 = BroadcastingList1

__getattr__ = _getter(__name__)
