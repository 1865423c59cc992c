// A model's tensors in device memory.
#pragma once

#include "base/cuda/device.h"
#include "train/backend.h"
#include "train/cuda/muon.h"
#include "train/parameters.h"
#include "train/partition.h"
#include "train/tensors.h"

namespace winnow::train::cuda {

/// Matrices in bf16, vectors in fp32. A layer's q, k and v are contiguous, weights as well as
/// biases, and so are gate and up: `query` and `gate` point to the whole block. `decision` and
/// `omega` are padded with zero rows up to padded_decisions().
using DeviceWeights = Tensors<const bf16*, const float*>;
using DeviceLayerWeights = LayerTensors<const bf16*, const float*>;
/// In fp32; null: not computed.
using DeviceGradients = Tensors<float*, float*>;
using DeviceLayerGradients = LayerTensors<float*, float*>;

/// Columns that the decisions of one token take in products.
int padded_decisions(const model::ModelSpec& spec);

/// Weights that do not change: a teacher's, and a student's when only its decisions are trained.
class FrozenWeights {
 public:
  /// Copies the tensors that `find` has to the device.
  FrozenWeights(const model::ModelSpec& spec, const FindTensor& find);
  /// The bytes that it takes.
  static std::size_t bytes(const model::ModelSpec& spec);

  [[nodiscard]] const bf16* matrix(const std::string& name) const;
  [[nodiscard]] const float* vector(const std::string& name) const;
  [[nodiscard]] DeviceWeights view(const model::ModelSpec& spec) const;

 private:
  ParameterList list_;
  winnow::cuda::DeviceBuffer<bf16> matrices_;
  winnow::cuda::DeviceBuffer<float> vectors_;
};

/// The trained tensors and their gradients, in the order of Parameters. Products read matrices in
/// bf16 and the rest in fp32. For the part that this rank updates there are also values and moments
/// in fp32.
class TrainedWeights {
 public:
  /// Takes the parameters from host memory. `partition` must outlive it.
  TrainedWeights(const model::ModelSpec& spec, const Parameters& parameters,
                 const Partition& partition, cudaStream_t stream);
  /// Bytes for a rank whose part has this many elements.
  static std::size_t bytes(const model::ModelSpec& spec, const ParameterList& list,
                           std::size_t part);

  /// Weights that are not trained come from `frozen`, if there is one.
  [[nodiscard]] DeviceWeights view(const FrozenWeights* frozen) const;
  [[nodiscard]] DeviceGradients gradients(bool with_omegas) const;

  /// Updates this rank's share of a part of the flat array.
  void apply(const AdamWOptions& options, const AdamW::Update& update, cudaStream_t stream);
  /// Call it when all ranks have changed everything that an update changes.
  void end_update(cudaStream_t stream);

  /// The arrays that Muon changes: those of this rank's part.
  [[nodiscard]] MuonArrays muon_arrays() const;

  /// The weights that products read, in the flat array's order: matrices, then the rest.
  [[nodiscard]] const winnow::cuda::DeviceBuffer<bf16>& matrices() const { return matrices_; }
  [[nodiscard]] const winnow::cuda::DeviceBuffer<float>& vectors() const { return vectors_; }

  /// This rank's part of the values. No work may be pending on the device.
  void fetch_values(std::span<float> own) const { values_.read(own); }
  /// The moments of this rank's part; this object owns the host memory. No work may be pending on
  /// the device.
  Moments fetch_moments();
  /// Reads this rank's part of all values, and the moments from where fetch_moments() put
  /// them.
  void store(std::span<const float> host_values, cudaStream_t stream);

  winnow::cuda::DeviceBuffer<float> gradient;

 private:
  /// Updates the weights that products read, elements [begin, end) of this rank's flat array part.
  void publish(std::size_t begin, std::size_t end, cudaStream_t stream);
  /// Where the rounded copy of the flat array's element `offset` is; null after the matrices.
  [[nodiscard]] bf16* rounded(std::size_t offset) const;
  [[nodiscard]] const bf16* rows_of(const std::string& name) const;
  /// A vector in the part after the matrices.
  [[nodiscard]] const float* vector(const std::string& name) const;

  model::ModelSpec spec_;
  ParameterList list_;
  const Partition& partition_;
  winnow::cuda::DeviceBuffer<float> values_;  // of this rank's part, as are the moments
  winnow::cuda::DeviceBuffer<float> first_moments_;
  winnow::cuda::DeviceBuffer<float> second_moments_;
  winnow::cuda::DeviceBuffer<bf16> matrices_;
  winnow::cuda::DeviceBuffer<float> vectors_;
  winnow::cuda::DeviceBuffer<bf16> rows_;  // padded, of every decision matrix
  std::map<std::string, std::size_t> row_offsets_;
  Buffer<float> host_first_moments_;
  Buffer<float> host_second_moments_;
};

}  // namespace winnow::train::cuda
