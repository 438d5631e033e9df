"""The ops of the GPU by the CUDA emulator: tests of the CPU's ops, again."""

import importlib

import pytest

from tests.support import emulated_gpu

TESTS = {
    "active_classes": (
        "test_all_classes_are_all_classes",
        "test_ids_past_32_bits",
        "test_infinite_and_equal_scores",
        "test_labels_of_any_shape",
        "test_log_uniform_fill_of_nearly_all_classes_ends",
        "test_more_labels_than_num_sampled_are_all_chosen",
        "test_same_seed_same_result",
        "test_targets_then_candidates_then_fill",
    ),
    "hashing_forest": (
        "test_a_leaf_that_holds_enough_is_taken_itself",
        "test_equal_scores_by_rising_id",
        "test_failed_build_leaves_the_old_forest",
        "test_no_queries",
        "test_nothing_is_found_before_the_first_forest",
        "test_padding_where_fewer_rows_are_found",
        "test_query_equals_the_brute_force_twin",
        "test_scores_are_of_the_rows_as_they_are_now",
        "test_state_round_trip_in_the_middle",
        "test_swap_exactly_at_the_fixed_step",
        "test_zero_rows_score_zero_under_cosine",
    ),
    "lsh": (
        "test_a_full_bucket_keeps_a_uniform_sample",
        "test_a_union_that_does_not_fit_is_cut_by_votes",
        "test_of_equal_votes_a_uniform_sample_is_kept",
        "test_another_seed_gives_other_functions",
        "test_codes_are_scale_free_and_zero_for_zero_vectors",
        "test_dwta_is_winner_take_all_where_nothing_is_zero",
        "test_found_classes_are_those_of_brute_force",
        "test_no_queries_find_nothing",
        "test_restored_tables_go_on_bit_for_bit",
        "test_rows_that_are_all_equal_share_all_buckets",
    ),
    "bfloat16_rows": (
        "test_compact_adam_in_numpy",
        "test_rounding_depends_on_seed_step_and_row_alone",
        "test_what_is_not_finite_stays_so",
    ),
    "row_update_ops": (
        "test_a_tensor_read_before_keeps_its_value",
        "test_any_size",
        "test_duplicates_and_none",
        "test_moments_that_there_are_not",
        "test_one_second_moment_for_each_row",
        "test_rows_are_assigned",
        "test_rows_of_16_bits",
        "test_sum_duplicate_rows",
        "test_touched_rows_move_and_others_do_not",
        "test_uninitialised_variable",
    ),
    "softmax_block_ops": (
        "test_empty_like_has_the_shape",
        "test_grad_in_blocks_is_the_softmax_except_at_targets",
        "test_invalid_arguments",
        "test_margin_on_a_target_far_above_the_rest",
        "test_stats_in_blocks_equal_the_logsumexp",
        "test_stats_of_extreme_logits",
        "test_top_k_in_blocks_with_ties_and_nan",
        "test_top_k_of_ids_past_32_bits",
        "test_write_rows",
    ),
}

for _module, _names in TESTS.items():
    _found = importlib.import_module(f"tests.ops.test_{_module}")
    for _name in _names:
        globals()[f"{_name}_of_{_module}"] = getattr(_found, _name)


@pytest.fixture(autouse=True, scope="module")
def emulated():
    with emulated_gpu.patched():
        yield
