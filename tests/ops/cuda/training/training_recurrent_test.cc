// The steps around the delta rule in training, against the CPU's ops.
#include "ops/cuda/training/training_recurrent.h"

#include <cmath>

#include "ops/activation.h"
#include "ops/causal_conv.h"
#include "ops/cuda/training/training_recurrent_testing.h"

namespace winnow::ops::cuda::testing {
namespace {

using CudaTrainingRecurrent = CudaTrainingOps;

// Random projections and logits of a world's tokens, in bf16 where products give bf16.
struct Projections {
  Values projected, logits;

  explicit Projections(const RecurrentWorld& world)
      : projected(draw_bf16(world.count(world.channels() + world.values()), 5)),
        logits(draw(world.count(world.logit_stride()), 6)) {}
};

// The CPU's way from projections to the delta rule's operands.
struct HostInputs {
  Values input, convolved, activated, mixed, logits, decays, rates;

  HostInputs(const RecurrentWorld& world, const Projections& from) {
    const DeltaRuleShape& heads = world.heads;
    const int width = world.channels() + world.values();
    Values parts = projections_of(world).apart(from.projected, width);
    input = taken(parts, width, 0, world.channels());
    convolved.resize(input.size());
    world.for_each_document([&](std::size_t first, std::size_t last) {
      Values tail(count_of((world.taps - 1) * world.channels()));
      causal_conv(of(convolved, world).slice(first, last), of(input, world).slice(first, last),
                  world.tap_values, {}, tail);
    });
    activated = convolved;
    activate(Activation::silu, of(activated, world));
    mixed = activated;
    for_each_head(heads, [&](int at, const Values& weight, float eps) {
      rms_norm(columns(of(mixed, world), at, heads.key_dim),
               columns(of(activated, world), at, heads.key_dim), weight, eps);
    });
    Values gates = logits_of(world).apart(from.logits, world.logit_stride());
    rates = taken(gates, 2 * heads.value_heads, 0, heads.value_heads);
    decays = logits = taken(gates, 2 * heads.value_heads, heads.value_heads, heads.value_heads);
    delta_gates(matrix(decays, count_of(heads.value_heads)),
                matrix(rates, count_of(heads.value_heads)), world.log_decay, world.decay_bias);
  }

  static Matrix<float> of(Values& x, const RecurrentWorld& world) {
    return matrix(x, count_of(world.channels()));
  }

  // Columns of rows of `stride`.
  static Values taken(const Values& x, int stride, int first, int count) {
    Values result;
    for (std::size_t at = count_of(first); at < x.size(); at += count_of(stride)) {
      const auto begin = x.begin() + static_cast<std::ptrdiff_t>(at);
      result.insert(result.end(), begin, begin + count);
    }
    return result;
  }

  // body(first channel, weight, epsilon) for the norms of all queries and keys.
  template <class Body>
  static void for_each_head(const DeltaRuleShape& heads, const Body& body) {
    const auto dim = static_cast<float>(heads.key_dim);
    for (int head = 0; head < 2 * heads.key_heads; ++head) {
      const float length = head < heads.key_heads ? 1.0F / std::sqrt(dim) : 1.0F;
      body(head * heads.key_dim, Values(count_of(heads.key_dim), length / std::sqrt(dim)),
           1e-6F / dim);
    }
  }
};

TEST_F(CudaTrainingRecurrent, InputsOfTheRule) {
  for (const RecurrentWorld& world : recurrent_worlds()) {
    const Projections from(world);
    const HostInputs expected(world, from);
    const RecurrentOnDevice device(world, from.projected, from.logits);
    const auto mixed = poisoned<float>(expected.mixed.size());
    const auto rates = poisoned<float>(expected.rates.size());
    const auto log_decays = poisoned<float>(expected.rates.size());
    recurrent_inputs(device.layer, mixed.data(), rates.data(), log_decays.data(), nullptr);
    expect_close(download(mixed), expected.mixed, kExact, "queries, keys, values");
    expect_close(download(rates), expected.rates, kExact, "rates");
    Values decays = download(log_decays);
    std::ranges::transform(decays, decays.begin(), [](float x) { return std::exp(x); });
    expect_close(decays, expected.decays, kExact, "decays");
  }
}

TEST_F(CudaTrainingRecurrent, InputsOfTheRuleBackward) {
  for (const RecurrentWorld& world : recurrent_worlds()) {
    const DeltaRuleShape& heads = world.heads;
    const Projections from(world);
    HostInputs inputs(world, from);
    const std::size_t gates = world.count(heads.value_heads);
    const Values dqueries = draw(gates * count_of(heads.key_dim), 21);
    const Values dkeys = draw(dqueries.size(), 22);
    Values dvalues = draw(world.count(world.values()), 23);
    Values drates = draw(gates, 24);
    const Values dlog_decays = draw(gates, 25);

    const RecurrentOnDevice device(world, from.projected, from.logits);
    const auto dq = upload(dqueries);
    const auto dk = upload(dkeys);
    const auto dv = upload(dvalues);
    const auto dr = upload(drates);
    const auto dl = upload(dlog_decays);
    const auto dconvolved = poisoned<float>(inputs.mixed.size());
    const auto dprojected = poisoned<bf16>(from.projected.size());
    const auto dlogits = poisoned<bf16>(from.logits.size());
    const auto dtaps = zeros(world.tap_values.size());
    const auto dlog_decay = zeros(world.log_decay.size());
    const auto dbias = zeros(world.log_decay.size());
    recurrent_inputs_backward(device.layer, {dq.data(), dk.data(), dv.data(), dr.data(), dl.data()},
                              dconvolved.data(),
                              {.projected = dprojected.data(),
                               .logits = dlogits.data(),
                               .taps = dtaps.data(),
                               .log_decay = dlog_decay.data(),
                               .decay_bias = dbias.data()},
                              nullptr);

    Values dactivated(inputs.mixed.size());
    const auto of = [&](Values& x) { return HostInputs::of(x, world); };
    const int group = heads.value_heads / heads.key_heads;
    for (std::size_t t = 0; t < count_of(world.rows); ++t) {
      for (int c = 0; c < world.values(); ++c) {
        of(dactivated).row(t)[count_of(2 * heads.key_width() + c)] =
            dvalues[t * count_of(world.values()) + count_of(c)];
      }
    }
    Values dnormed(inputs.mixed.size());
    for (std::size_t i = 0; i < dqueries.size(); ++i) {
      const std::size_t dim = count_of(heads.key_dim);
      const std::size_t head = i / dim % count_of(heads.value_heads) / count_of(group);
      const auto row = of(dnormed).row(i / (dim * count_of(heads.value_heads)));
      row[head * dim + i % dim] += dqueries[i];
      row[count_of(heads.key_width()) + head * dim + i % dim] += dkeys[i];
    }
    HostInputs::for_each_head(heads, [&](int at, const Values& weight, float eps) {
      rms_norm_backward(workspace_, columns(of(dactivated), at, heads.key_dim), {},
                        columns(of(dnormed), at, heads.key_dim),
                        columns(of(inputs.activated), at, heads.key_dim), weight, eps);
    });
    activate_backward(Activation::silu, of(dactivated), of(dactivated), of(inputs.convolved));
    Values dinput(inputs.input.size());
    Values expected_taps(world.tap_values.size());
    world.for_each_document([&](std::size_t first, std::size_t last) {
      causal_conv_backward(of(dinput).slice(first, last), expected_taps,
                           of(dactivated).slice(first, last), of(inputs.input).slice(first, last),
                           world.tap_values);
    });
    Values ddecays = dlog_decays;
    for (std::size_t i = 0; i < gates; ++i) {
      ddecays[i] /= inputs.decays[i];
    }
    const auto by_head = [&](Values& x) { return matrix(x, count_of(heads.value_heads)); };
    Values expected_log_decay(world.log_decay.size());
    Values expected_bias(world.log_decay.size());
    delta_gates_backward(by_head(ddecays), by_head(drates), expected_log_decay, expected_bias,
                         by_head(inputs.logits), by_head(inputs.decays), by_head(inputs.rates),
                         world.log_decay, world.decay_bias);

    const int width = world.channels() + world.values();
    const Values parts = projections_of(world).apart(download(dprojected), width);
    expect_close(HostInputs::taken(parts, width, 0, world.channels()), dinput, kRounded,
                 "projections");
    const Values both = logits_of(world).apart(download(dlogits), world.logit_stride());
    const int count = heads.value_heads;
    expect_close(HostInputs::taken(both, 2 * count, 0, count), drates, kRounded, "rates");
    expect_close(HostInputs::taken(both, 2 * count, count, count), ddecays, kRounded, "decays");
    expect_close(download(dtaps), expected_taps, kExact, "taps");
    expect_close(download(dlog_decay), expected_log_decay, 10 * kExact, "log decays");
    expect_close(download(dbias), expected_bias, 10 * kExact, "biases");
  }
}

TEST_F(CudaTrainingRecurrent, OutputsAndTheirGradients) {
  for (RecurrentWorld world : recurrent_worlds()) {
    const Projections from(world);
    const int width = world.channels() + world.values();
    const Values parts = projections_of(world).apart(from.projected, width);
    Values gates = HostInputs::taken(parts, width, world.channels(), world.values());
    Values recalled = draw_bf16(gates.size(), 31);
    Values dout = draw_bf16(gates.size(), 32);
    const RecurrentOnDevice device(world, from.projected, from.logits);
    const auto x = upload_bf16(recalled);
    const auto dy = upload_bf16(dout);
    const auto out = poisoned<bf16>(gates.size());
    const auto drecalled = poisoned<float>(gates.size());
    const auto dprojected = poisoned<bf16>(from.projected.size());
    const auto dnorm = zeros(world.norm.size());
    recurrent_outputs(device.layer, out.data(), x.data(), nullptr);
    recurrent_outputs_backward(device.layer, drecalled.data(), dy.data(), x.data(),
                               {.projected = dprojected.data(), .norm = dnorm.data()}, nullptr);

    const auto rows = [&](Values& values) { return matrix(values, count_of(world.values())); };
    const auto by_head = [&](Values& values) {
      return matrix(values, count_of(world.heads.value_dim));
    };
    Values normed(gates.size());
    rms_norm(by_head(normed), by_head(recalled), world.norm, world.eps);
    Values expected = gates;
    silu_multiply(rows(expected), rows(normed));
    expect_close(download(out), expected, kRounded, "outputs");
    Values dgates(gates.size());
    Values dnormed(gates.size());
    silu_multiply_backward(rows(dgates), rows(dnormed), rows(dout), rows(gates), rows(normed));
    Values expected_recalled(gates.size());
    Values expected_norm(world.norm.size());
    rms_norm_backward(workspace_, by_head(expected_recalled), expected_norm, by_head(dnormed),
                      by_head(recalled), world.norm, world.eps);
    expect_close(download(drecalled), expected_recalled, kExact, "what was recalled");
    const Values found = projections_of(world).apart(download(dprojected), width);
    expect_close(HostInputs::taken(found, width, world.channels(), world.values()), dgates,
                 kRounded, "gates");
    expect_close(download(dnorm), expected_norm, kExact, "norm");
  }
}

TEST_F(CudaTrainingRecurrent, GatesOfAttention) {
  constexpr int kRows = 37;
  constexpr int kHeads = 3;
  constexpr int kDim = 16;
  constexpr int kStride = 2 * kHeads * kDim + 32;  // keys and values behind them
  const Values projected = draw_bf16(count_of(kRows * kStride), 41);
  const Values bias = draw(count_of(2 * kHeads * kDim), 42);
  Values attended = draw_bf16(count_of(kRows * kHeads * kDim), 43);
  Values dout = draw_bf16(attended.size(), 44);
  Values gates;
  for (std::size_t i = 0; i < attended.size(); ++i) {
    const std::size_t column = i % count_of(kHeads * kDim);
    const std::size_t gate = column / kDim * 2 * kDim + kDim + column % kDim;
    gates.push_back(projected[i / count_of(kHeads * kDim) * kStride + gate] + bias[gate]);
  }
  const auto device_projected = upload_bf16(projected);
  const auto device_bias = upload(bias);
  const auto x = upload_bf16(attended);
  const auto gradient = upload_bf16(dout);
  const auto out = poisoned<bf16>(attended.size());
  const auto dprojected = poisoned<bf16>(projected.size());
  const TrainingOutputGates of{.rows = kRows,
                               .heads = kHeads,
                               .head_dim = kDim,
                               .stride = kStride,
                               .projected = device_projected.data(),
                               .bias = device_bias.data()};
  gate_attended(of, out.data(), x.data(), nullptr);
  gate_attended_backward(of, gradient.data(), dprojected.data(), x.data(), nullptr);

  const auto rows = [&](Values& values) { return matrix(values, count_of(kHeads * kDim)); };
  Values expected = attended;
  sigmoid_multiply(rows(expected), rows(gates));
  expect_close(download(out), expected, kRounded, "outputs");
  Values dattended = dout;
  Values dgates(gates.size());
  sigmoid_multiply_backward(rows(dattended), rows(dgates), rows(dout), rows(attended), rows(gates));
  expect_close(download(gradient), dattended, kRounded, "what was attended");
  const Values found = download(dprojected);
  for (std::size_t i = 0; i < gates.size(); ++i) {
    const std::size_t column = i % count_of(kHeads * kDim);
    const std::size_t gate = column / kDim * 2 * kDim + kDim + column % kDim;
    EXPECT_NEAR(found[i / count_of(kHeads * kDim) * kStride + gate], dgates[i],
                0.01F * std::abs(dgates[i]) + 1e-6F);
  }
}

}  // namespace
}  // namespace winnow::ops::cuda::testing
