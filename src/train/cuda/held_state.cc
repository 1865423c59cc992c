#include "train/cuda/held_state.h"

#include <cmath>

#include "train/cuda/copies.h"
#include "train/cuda/optimizer.h"

namespace winnow::train::cuda {
namespace {

AdamWStep step_of(const AdamWOptions& options, const AdamW::Update& update) {
  const auto steps = static_cast<double>(update.step);
  return {.beta1 = static_cast<float>(options.beta1),
          .beta2 = static_cast<float>(options.beta2),
          .epsilon = static_cast<float>(options.epsilon),
          .rate = static_cast<float>(update.rate / (1.0 - std::pow(options.beta1, steps))),
          .correction = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(options.beta2, steps))),
          .kept = static_cast<float>(1.0 - update.rate * update.decay),
          .gradient_factor = static_cast<float>(update.gradient_factor)};
}

}  // namespace

HeldState::HeldState(std::span<const float> values)
    : values_(values), first_moments_(values.size()), second_moments_(values.size()) {
  first_moments_.fill(0);
  second_moments_.fill(0);
}

void HeldState::apply(const AdamWOptions& options, const AdamW::Update& update,
                      std::pair<std::size_t, std::size_t> range, const float* gradients,
                      bf16* rounded, cudaStream_t stream) {
  const auto [begin, end] = range;
  apply_adamw(step_of(options, update),
              {.values = values_.data() + begin,
               .rounded = rounded == nullptr ? nullptr : rounded + begin,
               .gradients = gradients + begin,
               .first = first_moments_.data() + begin,
               .second = second_moments_.data() + begin,
               .count = end - begin},
              stream);
}

Moments HeldState::fetch_moments() {
  host_first_moments_.ensure(size());
  host_second_moments_.ensure(size());
  first_moments_.read(host_first_moments_.span());
  second_moments_.read(host_second_moments_.span());
  return {host_first_moments_.span(), host_second_moments_.span()};
}

void HeldState::store(std::span<const float> values) {
  copy_to_device(values_.data(), values.data(), values.size_bytes());
  copy_to_device(first_moments_.data(), host_first_moments_.data(), host_first_moments_.bytes());
  copy_to_device(second_moments_.data(), host_second_moments_.data(), host_second_moments_.bytes());
  winnow::cuda::wait_for_default_stream();
}

}  // namespace winnow::train::cuda
