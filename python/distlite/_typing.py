# SPDX-License-Identifier: BSD-3-Clause
"""Names of `typing` that are needed while a module runs.

Importing `typing` takes a third of the time that importing all of distlite takes.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import overload as overload
else:

    def overload(function: object) -> object:
        return function
