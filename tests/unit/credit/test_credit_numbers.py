"""Every numeric case of the papers, worked out by hand or by an independent script, as an example of the API.

Figures are given to six digits, so they are compared at 2e-6.
"""

import numpy as np
import pytest

from toolverse.credit import Batch, Levels, Loss, axes, estimate, shape
from toolverse.credit.axes import aggregate, denominators, effective_mask, kept_groups, log_ratios, policy_loss
from toolverse.credit.estimators import mira, offline
from toolverse.credit.estimators.trace import gap_values
from toolverse.credit.reweighters import empo, iapo
from toolverse.credit.shapers.milestones import progress_labels, shaping_term
from toolverse.credit.shapers.penalties import memory_reward, soft_overlong


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-6)


def outcomes(values, **each):
    return Batch.from_turns([{"outcome": value, "group": 0, **each} for value in values])


def tokens(lists):
    return {"token_mask": [[True] * len(turn) for turn in lists]}


class TestGae:
    def test_terminated_trajectory(self):
        batch = Batch.from_turns([{"rewards": [0, 0, 1], "values": [0.2, 0.4, 0.6], "terminated": True}])
        result = estimate("gae", batch, gamma=0.9, lam=0.8)
        close(result.advantages, [0.46816, 0.428, 0.4])
        close(result.targets, np.add(result.advantages, [0.2, 0.4, 0.6]))

    @pytest.mark.parametrize(("boot", "expected"), [(0.5, [0.18304, 0.032, -0.15]), (0.0, [-0.05024, -0.292, -0.6])])
    def test_truncated_trajectory_bootstraps_the_value_after_its_last_observation(self, boot, expected):
        record = {"rewards": [0, 0, 0], "values": [0.2, 0.4, 0.6], "truncated": True, "boot": boot}
        close(estimate("gae", Batch.from_turns([record]), gamma=0.9, lam=0.8).advantages, expected)

    def test_a_truncated_trajectory_may_count_as_ended(self):
        record = {"rewards": [0, 0, 0], "values": [0.2, 0.4, 0.6], "truncated": True, "boot": 0.5}
        result = estimate("gae", Batch.from_turns([record]), gamma=0.9, lam=0.8, bootstrap_truncated=False)
        close(result.advantages, [-0.05024, -0.292, -0.6])
        close(result.targets, np.add(result.advantages, [0.2, 0.4, 0.6]))

    def test_tool_tokens_do_not_exist_for_the_recursion(self):
        record = {
            "token_rewards": [[0, 0, 0, 0, 1]],
            "token_values": [[0.1, 0.2, 9, 9, 0.5]],
            "token_mask": [[1, 1, 0, 0, 1]],
        }
        result = estimate("token_gae", Batch.from_turns([record]), gamma=0.9, lam=0.8)
        close(result.advantages, [0.5192, 0.61, 0, 0, 0.5])

    def test_a_reward_on_a_masked_token_moves_to_the_last_policy_token(self):
        record = {"token_rewards": [[0, 0, 1]], "token_values": [[0.1, 0.2, 0]], "token_mask": [[1, 1, 0]]}
        result = estimate("token_gae", Batch.from_turns([record]), gamma=0.9, lam=0.8)
        close(result.advantages, [0.656, 0.8, 0])

    def test_turn_rewards_land_on_the_last_policy_token(self):
        record = {"rewards": [1], "token_values": [[0.1, 0.2, 0]], "token_mask": [[1, 1, 0]]}
        result = estimate("token_gae", Batch.from_turns([record]), gamma=0.9, lam=0.8)
        close(result.advantages, [0.656, 0.8, 0])


class TestGroupMethods:
    @pytest.mark.parametrize(
        ("rewards", "method", "settings", "expected"),
        [
            ([1, 0, 0, 1], "grpo", {}, [1, -1, -1, 1]),
            ([1, 0, 0, 1], "grpo", {"ddof": 1, "eps": 1e-6}, [0.866024, -0.866024, -0.866024, 0.866024]),
            ([1, 0, 0, 0], "grpo", {}, [1.732051, -0.57735, -0.57735, -0.57735]),
            ([1, 0, 0, 0], "grpo", {"ddof": 1}, [1.5, -0.5, -0.5, -0.5]),
            ([1, 0, 0, 0], "dr_grpo", {}, [0.75, -0.25, -0.25, -0.25]),
            ([1, 0, 0, 0], "rloo", {}, [1, -0.333333, -0.333333, -0.333333]),
            ([1, 1, 1, 1], "grpo", {}, [0, 0, 0, 0]),
        ],
    )
    def test_outcomes(self, rewards, method, settings, expected):
        close(estimate(method, outcomes(rewards), **settings).advantages, expected)

    def test_statistics_over_turns_weigh_long_rollouts_more(self):
        batch = Batch.from_turns([{"rewards": [0, 1]}, {"rewards": [0] * 6}])
        close(estimate("grpo", batch, ddof=1).advantages, [0.707107] * 2 + [-0.707107] * 6)
        by_turn = estimate("grpo", batch, ddof=1, statistics="turn").advantages
        close(by_turn, [1.620185] * 2 + [-0.540062] * 6)


class TestReinforce:
    def test_the_return_crosses_tool_tokens_unchanged(self):
        batch = Batch.from_turns([{"token_rewards": [[0, 0, 1]], "token_mask": [[1, 0, 1]]}])
        result = estimate("reinforce_pp", batch, gamma=0.5, unit="token", whitening="none")
        close(result.advantages, [0.5, 0, 1])

    def test_whitening(self):
        batch = outcomes([1, 0, 0, 1])
        expected = [0.866025, -0.866025, -0.866025, 0.866025]
        close(estimate("reinforce_pp", batch, whitening="bessel").advantages, expected)

    def test_group_baseline(self):
        batch = Batch.from_turns(
            [{"outcome": r, "group": g} for g, rewards in enumerate([[1, 0, 0], [1, 1, 0]]) for r in rewards]
        )
        centred = estimate("reinforce_pp_baseline", batch, whitening="none").advantages
        close(centred, [0.666667, -0.333333, -0.333333, 0.333333, 0.333333, -0.666667])
        whitened = estimate("reinforce_pp_baseline", batch).advantages
        close(whitened, [1.414214, -0.707107, -0.707107, 0.707107, 0.707107, -1.414214])
        bessel = estimate("reinforce_pp_baseline", batch, whitening="bessel").advantages
        close(bessel[:2], [1.290994, -0.645497])


class TestAxes:
    def test_sequence_ratio_is_the_geometric_mean_of_token_ratios(self):
        log_ratio = [[0.2, -0.1, 0.05]]
        batch = Batch.from_turns([{**tokens(log_ratio), "token_logp": log_ratio, "token_logp_old": [[0, 0, 0]]}])
        close(np.exp(log_ratios(batch, "sequence")), [1.051271] * 3)
        close(np.exp(log_ratios(batch, "token")), [1.221403, 0.904837, 1.051271])
        close(np.exp(np.sum(log_ratio)), 1.161834)

    def test_clipped_objective_of_sequence_ratios(self):
        loss = Loss(clip_low=3e-4, clip_high=4e-4)
        close(-policy_loss(np.array([1.0, -1.0]), np.full(2, 1.051271), loss), [1.0004, -1.051271])

    def test_clip_higher_and_dual_clip(self):
        dapo = Loss(clip_low=0.2, clip_high=0.28, dual_clip=3.0)
        objective = -policy_loss(np.array([1.0, -1.0, -1.0]), np.array([1.25, 0.7, 5.0]), dapo)
        close(objective, [1.25, -0.8, -3.0])
        close(-policy_loss(np.array([1.0]), np.array([1.25]), Loss()), [1.2])

    def test_turn_ratios(self):
        log_ratio = [[0.1, 0.3], [-0.2, 0, 0.05]]
        record = {**tokens(log_ratio), "token_logp": log_ratio, "token_logp_old": [[0, 0], [0, 0, 0]]}
        close(np.exp(log_ratios(Batch.from_turns([record]), "turn")), [1.221403] * 2 + [0.951229] * 3)

    def test_turn_ratio_of_memory_updates_and_its_cap(self):
        log_ratio = [[0.3, -0.1, 0.1], [9.0, 9.0, 9.0]]
        record = {**tokens(log_ratio), "token_logp": log_ratio, "token_logp_old": [[0.0] * 3] * 2}
        ratio = np.exp(log_ratios(Batch.from_turns([record]), "turn", cap=3.0))
        np.testing.assert_allclose(ratio[[0, 3]], [1.105171, 20.0855], rtol=0, atol=4e-5)

    def test_kl_estimates(self):
        k1, k2, k3 = axes.kl_estimates(np.array([0.3, -0.2]))
        close(k1, [0.3, -0.2])
        close(k2, [0.045, 0.02])
        close(k3, [0.040818, 0.021403])

    @pytest.mark.parametrize(
        ("aggregation", "expected"),
        [
            ("token-mean", -0.6),
            ("trajectory-mean-token-mean", 0.0),
            ("trajectory-mean-token-sum", -3.0),
            ("trajectory-mean-token-sum-constant", -0.3),
            ("turn-mean-token-mean", 0.0),
        ],
    )
    def test_aggregations(self, aggregation, expected):
        batch = Batch.from_turns([tokens([[0] * 2]), tokens([[0] * 8])])
        mask = effective_mask(batch, Loss())
        losses = np.array([1.0] * 2 + [-1.0] * 8)
        close(aggregate(losses, mask, denominators(batch, mask, aggregation, constant=10.0)), expected)

    def test_dynamic_sampling_keeps_mixed_groups(self):
        accuracies = {0: [0, 0, 0, 0], 1: [1, 0, 0, 0], 2: [1, 1, 1, 1], 3: [1, 1, 0, 0]}
        batch = Batch.from_turns([{"outcome": r, "group": g} for g, rewards in accuracies.items() for r in rewards])
        assert kept_groups(batch).tolist() == [1, 3]

    def test_value_loss_takes_the_worse_of_free_and_clipped(self):
        loss = axes.value_loss(np.array([1.0, 0.2]), np.array([0.0, 0.0]), np.array([1.0, 0.0]))
        close(loss, [0.125, 0.02])


class TestGigpo:
    def test_repeated_states(self):
        batch = Batch.from_turns(
            [
                {"rewards": [0, 0, 1], "state_key": ["s0", "A", "B"]},
                {"rewards": [0, 0, 0], "state_key": ["s0", "A", "A"]},
            ]
        )
        centred = estimate("gigpo", batch, gamma=0.9)
        close(centred.advantages, [0.905, 1.1, 0.5, -0.905, -0.8, -0.8])
        scaled = estimate("gigpo", batch, gamma=0.9, mode="mean_std_norm")
        close(scaled.advantages, [1.414214, 1.861807, 0.707107, -1.414214, -1.284457, -1.284457])
        assert centred.diagnostics["singleton_anchors"] == pytest.approx(1 / 6)

    def test_without_a_repeated_state_only_the_episode_part_remains(self):
        batch = Batch.from_turns(
            [{"rewards": [0, 1], "state_key": ["a", "b"]}, {"rewards": [0, 0], "state_key": ["c", "d"]}]
        )
        close(estimate("gigpo", batch, gamma=0.9).advantages, [0.5, 0.5, -0.5, -0.5])


class TestHae:
    @staticmethod
    def record(**changes):
        return {
            "rewards": [0, 0, 0, 1],
            "values_low": [0.3, 0.4, 0.5, 0.7],
            "values_high": [0.35, 0.45, 0.55, 0.65],
            "boundaries": [0, 2],
            "terminated": True,
            **changes,
        }

    @staticmethod
    def levels(record, **settings):
        settings = {"gamma": 0.9, "lam_low": 0.8, "lam_high": 0.95, **settings}
        advantages = estimate("hae", Batch.from_turns([record]), **settings).advantages
        assert isinstance(advantages, Levels)
        return advantages

    def test_two_segments(self):
        levels = self.levels(self.record())
        close(levels.low, [0.1284, 0.095, 0.346, 0.3])
        close(levels.high, [0.364825, 0.35])

    def test_values_high_may_be_one_per_boundary(self):
        levels = self.levels(self.record(values_high=[0.35, 0.55]))
        close(levels.high, [0.364825, 0.35])

    def test_one_segment_is_plain_gae(self):
        levels = self.levels(self.record(boundaries=[0]))
        close(levels.low, [0.275366, 0.29912, 0.346, 0.3])
        close(levels.high, [0.379])

    def test_a_segment_per_turn_is_one_step_td_below_and_gae_above(self):
        levels = self.levels(self.record(boundaries=[0, 1, 2, 3]))
        close(levels.low, [0.105, 0.095, 0.085, 0.3])
        close(levels.high, [0.33782, 0.330784, 0.33425, 0.35])

    def test_switch_advantage_is_the_centred_gain(self):
        record = {
            "rewards": [0, 0, 0],
            "values_low": [0.4] * 3,
            "values_low_prev": [0.4] * 3,
            "values_high": [0.6] * 3,
            "switch_prob": [0.25] * 3,
            "boundaries": [0, 1],
        }
        close(self.levels(record).switch, [0.0, 0.15, -0.05])

    def test_truncated_segment_bootstraps_each_level_with_its_own_critic(self):
        record = {
            "rewards": [0, 0],
            "values_low": [0.3, 0.4],
            "values_high": [0.35],
            "boundaries": [0],
            "truncated": True,
            "boot": {"low": 0.5, "high": 0.55},
        }
        levels = self.levels(record)
        close(levels.low, [0.096, 0.05])
        close(levels.high, [0.0955])

    def test_undiscounted_with_rewards_inside_segments(self):
        record = {
            "rewards": [0, 0.2, 0, 0, 1],
            "values_low": [0.3, 0.4, 0.5, 0.6, 0.8],
            "values_high": [0.35, 0.45, 0.75],
            "boundaries": [0, 1, 4],
        }
        levels = self.levels(record, gamma=1.0, lam_low=1.0)
        close(levels.low, [0.15, 0.55, 0.25, 0.15, 0.2])
        close(levels.high, [0.800625, 0.7375, 0.25])


class TestTara:
    ROWS = ([1, 1, 1], [1, 0, 1], [0, 1, 1])

    @pytest.mark.parametrize(
        ("rows", "gate", "expected"),
        [
            (ROWS, True, [[1.37526, 1.06066, 0], [0.573476, -2.12132, 0], [-1.948736, 1.06066, 0]]),
            (ROWS, False, [[1.06066, 0.707107, 0], [0, -1.414214, 0], [-1.06066, 0.707107, 0]]),
            (([1, 1], [0, 1]), True, [[1.5, 0], [-1.5, 0]]),
        ],
    )
    def test_coverage_rows(self, rows, gate, expected):
        batch = Batch.from_turns([{"golden_covered": row} for row in rows])
        close(estimate("tara", batch, gate=gate).advantages.reshape(np.shape(expected)), expected)

    def test_all_messages_of_a_user_turn_get_its_advantage(self):
        batch = Batch.from_turns(
            [
                {"golden_covered": [0, 1, 1], "user_turn_index": [0, 0, 1]},
                {"golden_covered": [0, 1], "user_turn_index": [0, 1]},
            ]
        )
        close(estimate("tara", batch).advantages, [1.5, 1.5, 0, -1.5, 0])


class TestMira:
    def test_potential_shaping_telescopes_to_minus_the_first_potential(self):
        record = {"rewards": [0] * 4, "values_potential": [0, 0.25, 0.25, 0.75], "terminated": True}
        term = shaping_term(Batch.from_turns([record]), 0.9)
        close(term, [0.225, -0.025, 0.425, -0.75])
        close(term @ 0.9 ** np.arange(4), 0.0)

    def test_keeping_the_terminal_potential_would_change_the_return(self):
        record = {"rewards": [0] * 4, "values_potential": [0, 0.25, 0.25, 0.75], "boot": {"potential": 1.0}}
        term = shaping_term(Batch.from_turns([record]), 0.9)
        close(term[-1], 0.15)
        close(term @ 0.9 ** np.arange(4), 0.6561)

    def test_gae_of_shaped_rewards_and_shifted_values_is_gae(self):
        phi, values = np.array([0, 0.25, 0.25, 0.75]), np.array([0.2, 0.3, 0.4, 0.6])
        batch = Batch.from_turns([{"rewards": [0, 0, 0, 1], "values": values, "values_potential": phi}])
        expected = [0.335075, 0.36816, 0.428, 0.4]
        close(estimate("gae", batch, gamma=0.9, lam=0.8).advantages, expected)
        shaped = shape("potential", batch, gamma=0.9).replace(values=values - phi)
        close(estimate("gae", shaped, gamma=0.9, lam=0.8).advantages, expected)

    def test_doubly_robust_advantage(self):
        batch = Batch.from_turns([{"rewards": [0.5, 0.5], "values": [0.2, 0.5]}])
        for w in (1.0, 0.0, 0.5):
            close(estimate("mira", batch, w=w).advantages, [0.8, 0.0])

    def test_squared_error_policy_loss(self):
        close(mira.regression_loss(np.array([0.1]), np.array([0.65])), [0.3025])

    def test_progress_labels(self):
        expected = [0, 0.083333, 0.166667, 0.25, 0.333333, 0.416667, 0.5, 0.5, 0.5]
        close(progress_labels([3, 6], 4, 8), expected)


class TestTrace:
    @pytest.mark.parametrize(("logprobs", "value"), [([-5.1187, -1.5712], 1.1806), ([-10.6570, -7.1061], 0.4052)])
    def test_values_of_the_papers_appendix(self, logprobs, value):
        batch = Batch.from_turns([{"ref_target_logprob": logprobs}])
        assert gap_values(batch, 0.001)[1] == pytest.approx(value, abs=5e-5)

    @pytest.mark.parametrize(
        ("values", "outcome", "window", "expected"),
        [
            ([0, 0.2, 0.1, 0.5], 1.25, 3, [1.434098, 1.722222, 2.4]),
            ([0, 0.2, 0.1, 0.5], 1.25, 1, [0.2, -0.1, 2.4]),
            ([0, 0.2, 0.5], -1.0, 0, [0, -1.6]),
        ],
    )
    def test_windowed_credit(self, values, outcome, window, expected):
        from toolverse.credit.estimators.trace import windowed_credit

        delta = np.diff(values)
        batch = Batch.from_turns([{"rewards": [0] * len(delta)}])
        credit = windowed_credit(batch, delta, np.full(len(delta), outcome), window=window, gamma=0.8, terminal=2.0)
        close(credit, expected)

    def test_whole_advantage(self):
        batch = Batch.from_turns(
            [
                {"ref_target_logprob": [-3, -2, -2, -0.5], "outcome": 1.0},
                {"ref_target_logprob": [-3, -3], "outcome": 0.0},
            ]
        )
        close(gap_values(batch, 0.1)[:4], [0, 0.389465, 0.389465, 1.642228])
        close(estimate("trace", batch).advantages[:3], [1.302442, 1.367357, 1.570553])
        credit = (estimate("trace", batch, w_turn=1.0).advantages - 1.0)[:3]
        close(credit, [1.51221, 1.836784, 2.852763])


class TestLogoGrpo:
    def test_each_branch_is_compared_with_its_own_group(self):
        branches = [("global", "task", None, r) for r in (0.6, 0.2, 0.4, 0.8)]
        branches += [("local", "task/z1", "z1", r) for r in (0.5, 0.5, 0.9, 0.1)]
        branches += [("local", "task/z2", "z2", r) for r in (0.3, 0.3)]
        batch = Batch.from_turns(
            [{"branch": b, "group": g, "snapshot_before": str(z), "outcome": r} for b, g, z, r in branches]
        )
        expected = [0.447214, -1.341641, -0.447214, 1.341641, 0, 0, 1.414214, -1.414214, 0, 0]
        close(estimate("logo_grpo", batch).advantages, expected)

    def test_sessions_of_full_rollouts_are_compared_session_by_session(self):
        batch = Batch.from_turns(
            [
                {"rewards": [0, 1, 0], "session_id": ["a", "a", "b"]},
                {"rewards": [0, 1], "session_id": ["a", "b"]},
            ]
        )
        close(estimate("logo_grpo", batch).advantages, [1, 1, -1, -1, 1])

    def test_session_reward_charges_for_memory_beyond_the_allowance(self):
        reward = memory_reward(np.array([0.55, 0.55]), np.array([900.0, 600.0]), np.array([1000.0, 1000.0]))
        close(reward, [0.49, 0.55])


class TestHipifAndHimac:
    def test_step_scores_over_all_steps_of_the_group(self):
        batch = Batch.from_turns([{"outcome": 1, "process": [0, -0.1, 0]}, {"outcome": 0, "process": [-0.1, -0.1, 0]}])
        expected = [1.0066, 0.986667, 1.0066, -1.0066, -1.0066, -0.986667]
        close(estimate("hipif", batch, scale=10.0).advantages, expected)

    def test_a_floor_keeps_one_small_penalty_from_becoming_the_whole_signal(self):
        batch = Batch.from_turns([{"outcome": 1, "process": [0, 0, 0, -0.1]}])
        close(estimate("hipif", batch, scale=10.0).advantages, [0.57735, 0.57735, 0.57735, -1.732051])
        close(estimate("hipif", batch, scale=10.0, min_std=0.1).advantages, [0, 0, 0, 0])

    @pytest.mark.parametrize(
        ("level", "rewards", "expected"),
        [
            ("macro", [1, 0, 1, 1], [0.57735, -1.732051, 0.57735, 0.57735]),
            ("micro", [1, 1, 0, 0], [1, 1, -1, -1]),
            ("micro", [0.8, 0.2, 0.5, 0.5], [1.414214, -1.414214, 0, 0]),
            ("micro", [1, 1, 1, 1], [0, 0, 0, 0]),
        ],
    )
    def test_phases(self, level, rewards, expected):
        close(estimate("himac", outcomes(rewards, level=level, plan_id="z")).advantages, expected)

    def test_executions_are_compared_with_executions_of_their_own_blueprint(self):
        records = [{"outcome": r, "level": "micro", "plan_id": p} for p, r in [(1, 1), (1, 0), (2, 1), (2, 1)]]
        close(estimate("himac", Batch.from_turns(records)).advantages, [1, -1, 0, 0])


class TestStepPo:
    def test_turn_gae_whitened_over_turn_rows(self):
        batch = Batch.from_turns(
            [{"rewards": [0, 0, 1], "values": [0.2, 0.4, 0.6]}, {"rewards": [0, 0], "values": [0.3, 0.1]}]
        )
        raw = estimate("gae", batch, gamma=0.9, lam=0.8).advantages
        close(raw, [0.46816, 0.428, 0.4, -0.282, -0.1])
        result = estimate("steppo", batch, gamma=0.9, lam=0.8)
        close(result.advantages, [0.819631, 0.704267, 0.623835, -1.335272, -0.812461])
        assert result.loss.ratio_unit == "turn"

    def test_trajectories_of_length_one_do_not_leak_into_each_other(self):
        batch = Batch.from_turns([{"rewards": [1], "values": [0.4]}, {"rewards": [0], "values": [0.4]}])
        close(estimate("gae", batch, gamma=0.9, lam=0.8).advantages, [0.6, -0.4])


class TestOffline:
    def test_expectile_loss(self):
        close(offline.expectile_loss(np.array([0.5, -0.5]), 0.7), [0.175, 0.075])
        close(offline.expectile_loss(np.array([0.2, -0.1]), 0.9), [0.036, 0.001])

    def test_exponential_weights(self):
        close(offline.exponential_weights(np.array([0.3, -0.2]), 2.0), [1.822119, 0.67032])
        close(offline.exponential_weights(np.array([0.5, -0.5]), 1.0), [1.648721, 0.606531])
        close(offline.exponential_weights(np.array([4.0]), 1.0), [20.0])

    def test_q_targets(self):
        batch = Batch.from_turns(
            [
                {"rewards": [0.2, 0, 0.3], "values": [0.9, 0.5, 0.4], "values_q": [0, 0, 0]},
            ]
        )
        close(estimate("step_hrl", batch).targets, [0.695, 0.396, 0.3])


class TestMae:
    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({}, [0.678125, 0.5875, 0.65, 0.47, 0.6]),
            ({"mode": "centred"}, [0.739583, 0.648958, 0.711458, 0.435, 0.565]),
            ({"beta": 0.0}, [0.7, 0.7, 0.7, 0.5, 0.5]),
            ({"lam_intra": 1.0}, [0.7, 0.6, 0.65, 0.5, 0.6]),
        ],
    )
    def test_modes(self, settings, expected):
        batch = Batch.from_turns([{"rewards": [0, 1], "token_values": [[0.2, 0.3, 0.25], [0.5, 0.4]]}])
        close(estimate("mae", batch, **settings).advantages, expected)

    def test_one_token_turns_are_plain_gae(self):
        batch = Batch.from_turns([{"rewards": [0, 0, 1], "token_values": [[0.2], [0.4], [0.6]]}])
        close(estimate("mae", batch, gamma=0.9, lam=0.8).advantages, [0.46816, 0.428, 0.4])


class TestEmpo:
    @staticmethod
    def batch(credits):
        old, new = np.log([0.10, 0.05, 0.20]), np.log([0.12, 0.04, 0.20])
        return Batch.from_turns(
            [
                {"outcome": a, "state_key": ["s"], "effect_key": [e], "logp_old": [lo], "logp": [ln]}
                for a, e, lo, ln in zip(credits, "aab", old, new, strict=True)
            ]
        )

    def test_effect_ratios(self):
        batch = self.batch([1, -0.5, -0.5])
        close(empo.effect_ratios(batch, weighting="likelihood"), [1.066667, 1.066667, 1.0])
        close(empo.effect_ratios(batch), [1.0, 1.0, 1.0])

    @pytest.mark.parametrize("credits", [[1, -0.5, -0.5], [-0.5, 1, -0.5]])
    def test_credit_belongs_to_the_effect_and_not_to_its_wording(self, credits):
        batch = self.batch(credits)  # the outcomes sum to 0, so dr_grpo returns them as they are
        likelihood = estimate("empo", batch, base="dr_grpo", weighting="likelihood").advantages / 3
        close(likelihood, [0.111111, 0.055556, -0.166667])
        close(estimate("empo", batch, base="dr_grpo").advantages / 3, [0.083333, 0.083333, -0.166667])
        close(estimate("dr_grpo", batch).advantages, credits)


class TestIapo:
    LENGTH = np.array([4.0, 8.0, 4.0])

    def features(self):
        return iapo.InfluenceFeatures.from_degrees(
            np.array([2, 0, 1]), np.array([0, 1, 0]), np.array([0, 1, 1]), np.array([False, True, False])
        )

    def test_features_and_weights(self):
        features, offsets = self.features(), np.array([0, 3])
        close(features.plus, [1.098612, 0.693147, 1.098612])
        close(features.minus, [0, 1.386294, 0])
        positive = iapo.positive_weights(features, self.LENGTH, offsets, c=0.25, beta=0.0)
        close(positive, [1.244919, 0.755081, 1.244919])
        negative = iapo.negative_weights(features, self.LENGTH, offsets, c=0.25)
        close(negative, [0.755081, 1.244919, 0.755081])
        weighted = iapo.positive_weights(features, self.LENGTH, offsets, c=0.25, beta=0.05)
        close(weighted, [1.27721, 0.72279, 1.27721])
        close(-0.8 * negative, [-0.604065, -0.995935, -0.604065])
        close((-0.8 * negative) @ self.LENGTH, -12.8)

    def test_features_all_zero_leave_the_weights_at_one(self):
        zero = np.zeros(3, np.int64)
        features = iapo.InfluenceFeatures.from_degrees(zero, zero, zero, zero.astype(bool))
        close(iapo.positive_weights(features, self.LENGTH, np.array([0, 3]), c=0.25, beta=0.05), [1, 1, 1])

    def test_blame_for_a_failure_that_was_built_upon(self):
        features = iapo.InfluenceFeatures.from_degrees(
            np.array([3, 0]), np.array([1, 0]), np.array([0, 3]), np.array([True, False])
        )
        close(iapo.negative_weights(features, np.array([1.0, 9.0]), np.array([0, 2]), c=0.25), [1.548281, 0.93908])

    def test_edges_of_a_batch_become_features(self):
        edges = [(0, 1, "input"), (0, 2, "success_utilization"), (1, 2, "failed_utilization")]
        batch = Batch.from_turns(
            [
                {"outcome": 1, "rewards": [0, 0, 1], "edges": edges, "length": [4, 8, 4], "direct_use": [0, 0, 0]},
                {"outcome": 0, "rewards": [0], "edges": [], "length": [5], "direct_use": [1]},
            ]
        )
        features = iapo.InfluenceFeatures.of(batch)
        close(np.expm1(features.plus), [2, 1, 1, 1])
        close(np.expm1(features.minus), [0, 3, 0, 0])  # the failed out-edge alone flags the error
        result = estimate("iapo", batch)
        close(result.advantages[:3] @ [4, 8, 4], 16.0)
        assert result.advantages[0] > result.advantages[1]


def test_soft_overlong_penalty():
    close(soft_overlong(np.array([80, 85, 90, 100, 101]), limit=100, cache=20), [0, -0.25, -0.5, -1, -1])
