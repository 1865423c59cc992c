// A model's tensors in device memory.
#pragma once

#include "base/cuda/device.h"
#include "train/backend.h"
#include "train/cuda/muon.h"
#include "train/parameters.h"
#include "train/partition.h"
#include "train/tensors.h"

namespace winnow::train::cuda {

/// Matrices in bf16, vectors in fp32. Of a layer q, k and v lie one after another, weights and
/// biases, and so do gate and up: `query` and `gate` point to all of theirs. `decision` and `omega`
/// have zeros behind their rows, up to padded_decisions().
using DeviceWeights = Tensors<const bf16*, const float*>;
using DeviceLayerWeights = LayerTensors<const bf16*, const float*>;
/// In fp32; null: not computed.
using DeviceGradients = Tensors<float*, float*>;
using DeviceLayerGradients = LayerTensors<float*, float*>;

/// Columns that decisions of a token take in products.
int padded_decisions(const model::ModelSpec& spec);

/// Weights that stay as they are: of a teacher, and of a student whose decisions alone are trained.
class FrozenWeights {
 public:
  /// Copies what `find` has to the device.
  FrozenWeights(const model::ModelSpec& spec, const FindTensor& find);
  /// Bytes that it takes.
  static std::size_t bytes(const model::ModelSpec& spec);

  [[nodiscard]] const bf16* matrix(const std::string& name) const;
  [[nodiscard]] const float* vector(const std::string& name) const;
  [[nodiscard]] DeviceWeights view(const model::ModelSpec& spec) const;

 private:
  ParameterList list_;
  winnow::cuda::DeviceBuffer<bf16> matrices_;
  winnow::cuda::DeviceBuffer<float> vectors_;
};

/// The trained tensors and their gradients, in the order of Parameters: what products read, which
/// is matrices in bf16 and the rest in fp32; and of the part that this rank updates, values and
/// moments in fp32.
class TrainedWeights {
 public:
  /// Parameters as they are in host memory. `partition` must outlive it.
  TrainedWeights(const model::ModelSpec& spec, const Parameters& parameters,
                 const Partition& partition, cudaStream_t stream);
  /// With a part of so many elements.
  static std::size_t bytes(const model::ModelSpec& spec, const ParameterList& list,
                           std::size_t part);

  /// What is not trained comes from `frozen`, if there is one.
  [[nodiscard]] DeviceWeights view(const FrozenWeights* frozen) const;
  [[nodiscard]] DeviceGradients gradients(bool with_omegas) const;

  /// One update of what this rank has of a part of the flat array.
  void apply(const AdamWOptions& options, const AdamW::Update& update, cudaStream_t stream);
  /// Everything that an update changes has changed, on all ranks.
  void end_update(cudaStream_t stream);

  /// Where Muon finds what it changes: arrays of this rank's part.
  [[nodiscard]] MuonArrays muon_arrays() const;

  /// What products read, in the flat array's order: the matrices, and what lies behind them.
  [[nodiscard]] const winnow::cuda::DeviceBuffer<bf16>& matrices() const { return matrices_; }
  [[nodiscard]] const winnow::cuda::DeviceBuffer<float>& vectors() const { return vectors_; }

  /// This rank's part of the values. Nothing may be under way on the device.
  void fetch_values(std::span<float> own) const { values_.read(own); }
  /// The moments of this rank's part, in host memory of this object. Nothing may be under way on
  /// the device.
  Moments fetch_moments();
  /// Takes over this rank's part of all values, and the moments from where fetch_moments() left
  /// them.
  void store(std::span<const float> host_values, cudaStream_t stream);

  winnow::cuda::DeviceBuffer<float> gradient;

 private:
  /// What products read of elements [begin, end) of the flat array, of this rank's part.
  void publish(std::size_t begin, std::size_t end, cudaStream_t stream);
  /// Where the rounded copy of the flat array's element `offset` is; null behind the matrices.
  [[nodiscard]] bf16* rounded(std::size_t offset) const;
  [[nodiscard]] const bf16* rows_of(const std::string& name) const;
  /// Of what lies behind the matrices.
  [[nodiscard]] const float* vector(const std::string& name) const;

  model::ModelSpec spec_;
  ParameterList list_;
  const Partition& partition_;
  winnow::cuda::DeviceBuffer<float> values_;  // of the part, as are moments
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
