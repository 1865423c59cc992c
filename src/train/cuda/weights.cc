#include "train/cuda/weights.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "train/cuda/optimizer.h"
#include "train/decisions.h"
#include "train/rounded.h"
#include "train/visit_tensors.h"

namespace winnow::train::cuda {
namespace {

using winnow::cuda::check;
using winnow::cuda::DeviceBuffer;

// Elements of the embedding and of matrices, which come first.
std::size_t matrix_elements(const ParameterList& list) {
  return std::max(list.range(Role::embedding).second, list.range(Role::matrix).second);
}

bool is_matrix(const Parameter& parameter) {
  return parameter.role == Role::embedding || parameter.role == Role::matrix;
}

void copy_to_device(void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copy to the device");
}

template <class T>
DeviceBuffer<T> zeros(std::size_t count) {
  DeviceBuffer<T> buffer(count);
  buffer.fill(0);
  return buffer;
}

// Calls one function for matrices and another for vectors.
template <class OnMatrix, class OnVector>
struct Visit {
  OnMatrix on_matrix;
  OnVector on_vector;
  void operator()(const std::string& name, const Shape&, const bf16*& matrix) const {
    matrix = on_matrix(name);
  }
  void operator()(const std::string& name, const Shape&, const float*& vector) const {
    vector = on_vector(name);
  }
};

template <class OnMatrix, class OnVector>
DeviceWeights bind(const model::ModelSpec& spec, const OnMatrix& on_matrix,
                   const OnVector& on_vector) {
  DeviceWeights weights{};
  visit_tensors(spec, weights, Visit<OnMatrix, OnVector>{on_matrix, on_vector});
  if (spec.tied_embeddings) {
    weights.head = weights.embedding;
  }
  return weights;
}

}  // namespace

int padded_decisions(const model::ModelSpec& spec) {
  return (static_cast<int>(decision_count(spec)) + 7) / 8 * 8;
}

FrozenWeights::FrozenWeights(const model::ModelSpec& spec, const FindTensor& find)
    : list_(spec, Trained::everything),
      matrices_(matrix_elements(list_)),
      vectors_(list_.size() - matrix_elements(list_)) {
  std::vector<float> values;
  for (const Parameter& parameter : list_.list()) {
    const TensorView tensor = *find(parameter.name);
    const bool matrix = is_matrix(parameter);
    if (matrix && tensor.dtype == DType::bf16) {
      copy_to_device(matrices_.data() + parameter.offset, tensor.data, tensor.bytes());
      continue;
    }
    values.resize(parameter.count);
    widen(tensor, values);
    if (matrix) {
      const auto rounded = train::rounded(values, DType::bf16);
      copy_to_device(matrices_.data() + parameter.offset, rounded.data(), rounded.bytes());
    } else {
      copy_to_device(vectors_.data() + parameter.offset - matrix_elements(list_), values.data(),
                     parameter.count * sizeof(float));
    }
  }
  winnow::cuda::wait_for_default_stream();
}

std::size_t FrozenWeights::bytes(const model::ModelSpec& spec) {
  const ParameterList list(spec, Trained::everything);
  const std::size_t matrices = matrix_elements(list);
  return matrices * sizeof(bf16) + (list.size() - matrices) * sizeof(float);
}

const bf16* FrozenWeights::matrix(const std::string& name) const {
  return list_.contains(name) ? matrices_.data() + list_.find(name).offset : nullptr;
}

const float* FrozenWeights::vector(const std::string& name) const {
  return list_.contains(name) ? vectors_.data() + list_.find(name).offset - matrix_elements(list_)
                              : nullptr;
}

DeviceWeights FrozenWeights::view(const model::ModelSpec& spec) const {
  return bind(
      spec, [this](const std::string& name) { return matrix(name); },
      [this](const std::string& name) { return vector(name); });
}

TrainedWeights::TrainedWeights(const model::ModelSpec& spec, const Parameters& parameters,
                               const Partition& partition, cudaStream_t stream)
    : gradient(parameters.size()),
      spec_(spec),
      list_(parameters),
      partition_(partition),
      values_(partition.own(parameters.values())),
      first_moments_(zeros<float>(partition.size())),
      second_moments_(zeros<float>(partition.size())),
      matrices_(matrix_elements(parameters)),
      vectors_(parameters.values().subspan(matrix_elements(parameters))) {
  std::size_t rows = 0;
  for (const Parameter& parameter : list_.list()) {
    if (parameter.role == Role::decision && parameter.shape.size() == 2) {
      row_offsets_[parameter.name] = rows;
      rows +=
          static_cast<std::size_t>(padded_decisions(spec)) * static_cast<std::size_t>(spec.hidden);
    }
  }
  rows_ = zeros<bf16>(rows);
  publish(partition.begin(), partition.end(), stream);
}

std::size_t TrainedWeights::bytes(const model::ModelSpec& spec, const ParameterList& list,
                                  std::size_t part) {
  const auto rows = static_cast<std::size_t>(2 * spec.layer_count() * spec.hidden);
  const std::size_t matrices = matrix_elements(list);
  return (list.size() + 3 * part + list.size() - matrices) * sizeof(float) +
         matrices * sizeof(bf16) +
         rows * static_cast<std::size_t>(padded_decisions(spec)) * sizeof(bf16);
}

bf16* TrainedWeights::rounded(std::size_t offset) const {
  return offset < matrices_.size() ? matrices_.data() + offset : nullptr;
}

// Matrices come first.
void TrainedWeights::publish(std::size_t begin, std::size_t end, cudaStream_t stream) {
  const std::size_t middle = std::clamp(matrices_.size(), begin, end);
  const float* const own = values_.data() - partition_.begin();
  round_values(matrices_.data() + begin, own + begin, middle - begin, stream);
  if (middle < end) {
    check(cudaMemcpyAsync(vectors_.data() + (middle - matrices_.size()), own + middle,
                          (end - middle) * sizeof(float), cudaMemcpyDeviceToDevice, stream),
          "copy values");
  }
}

void TrainedWeights::end_update(cudaStream_t stream) {
  const std::size_t used = decision_count(spec_) * static_cast<std::size_t>(spec_.hidden);
  for (const auto& [name, offset] : row_offsets_) {
    round_values(rows_.data() + offset, vector(name), used, stream);
  }
}

void TrainedWeights::apply(const AdamWOptions& options, const AdamW::Update& update,
                           cudaStream_t stream) {
  const auto steps = static_cast<double>(update.step);
  const AdamWStep step{
      .beta1 = static_cast<float>(options.beta1),
      .beta2 = static_cast<float>(options.beta2),
      .epsilon = static_cast<float>(options.epsilon),
      .rate = static_cast<float>(update.rate / (1.0 - std::pow(options.beta1, steps))),
      .correction = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(options.beta2, steps))),
      .kept = static_cast<float>(1.0 - update.rate * update.decay),
      .gradient_factor = static_cast<float>(update.gradient_factor)};
  // Matrices come first, and are rounded on the way.
  const auto [first, last] = partition_.own({update.begin, update.end});
  const std::size_t middle = std::clamp(matrices_.size(), first, last);
  const auto apply_to = [&](std::size_t begin, std::size_t end, bf16* rounded_values) {
    const std::size_t at = begin - partition_.begin();
    apply_adamw(step,
                {.values = values_.data() + at,
                 .rounded = rounded_values,
                 .gradients = gradient.data() + begin,
                 .first = first_moments_.data() + at,
                 .second = second_moments_.data() + at,
                 .count = end - begin},
                stream);
  };
  apply_to(first, middle, rounded(first));
  apply_to(middle, last, nullptr);
  publish(middle, last, stream);
}

MuonArrays TrainedWeights::muon_arrays() const {
  return {values_.data(), rounded(partition_.begin()), gradient.data() + partition_.begin(),
          first_moments_.data()};
}

Moments TrainedWeights::fetch_moments() {
  host_first_moments_.ensure(partition_.size());
  host_second_moments_.ensure(partition_.size());
  first_moments_.read(host_first_moments_.span());
  second_moments_.read(host_second_moments_.span());
  return {host_first_moments_.span(), host_second_moments_.span()};
}

void TrainedWeights::store(std::span<const float> host_values, cudaStream_t stream) {
  const auto own = partition_.own(host_values);
  copy_to_device(values_.data(), own.data(), own.size_bytes());
  copy_to_device(first_moments_.data(), host_first_moments_.data(), host_first_moments_.bytes());
  copy_to_device(second_moments_.data(), host_second_moments_.data(), host_second_moments_.bytes());
  winnow::cuda::wait_for_default_stream();
  publish(partition_.begin(), partition_.end(), stream);
}

const float* TrainedWeights::vector(const std::string& name) const {
  return vectors_.data() + (list_.find(name).offset - matrices_.size());
}

const bf16* TrainedWeights::rows_of(const std::string& name) const {
  const auto found = row_offsets_.find(name);
  return found == row_offsets_.end() ? nullptr : rows_.data() + found->second;
}

DeviceWeights TrainedWeights::view(const FrozenWeights* frozen) const {
  return bind(
      spec_,
      [&](const std::string& name) {
        if (!list_.contains(name)) {
          return frozen != nullptr ? frozen->matrix(name) : nullptr;
        }
        const Parameter& parameter = list_.find(name);
        return is_matrix(parameter) ? rounded(parameter.offset) : rows_of(name);
      },
      [&](const std::string& name) {
        if (!list_.contains(name)) {
          return frozen != nullptr ? frozen->vector(name) : nullptr;
        }
        return vector(name);
      });
}

DeviceGradients TrainedWeights::gradients(bool with_omegas) const {
  DeviceGradients gradients{};
  visit_tensors(spec_, gradients, [&](const std::string& name, const Shape&, float*& tensor) {
    tensor = list_.contains(name) ? gradient.data() + list_.find(name).offset : nullptr;
  });
  if (spec_.tied_embeddings) {
    gradients.head = gradients.embedding;
  }
  for (DeviceLayerGradients& layer : gradients.layers) {
    if (!with_omegas) {
      layer.omega = nullptr;
      layer.omega_bias = nullptr;
    }
  }
  return gradients;
}

}  // namespace winnow::train::cuda
