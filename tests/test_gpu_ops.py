"""The ops of the GPU by the CUDA emulator: the tests of the CPU's, again."""

import emulated_gpu
import pytest
from test_row_update_ops import test_a_tensor_read_before_keeps_its_value
from test_row_update_ops import test_any_size
from test_row_update_ops import test_duplicates_and_none
from test_row_update_ops import test_last_step_is_recorded
from test_row_update_ops import test_sum_duplicate_rows
from test_row_update_ops import test_touched_rows_move_and_others_do_not
from test_row_update_ops import test_uninitialised_variable

__all__ = [name for name in dir() if name.startswith("test_")]


@pytest.fixture(autouse=True, scope="module")
def emulated():
    with emulated_gpu.patched():
        yield
