#include "engine/calibration_file.h"

#include <fmt/ranges.h>

#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/replaceable_file.h"
#include "checkpoint/safetensors.h"

namespace winnow::engine {
namespace {

// The names of a layer's tensors in the file.
struct LayerTensors {
  std::string means;
  Shape means_shape;
  std::string lengths;
  Shape lengths_shape;
};

LayerTensors layer_tensors(const kvcache::CacheShape& shape, int layer) {
  const std::int64_t heads = std::int64_t{shape.kv_heads_of(layer)} * shape.group_of(layer);
  return {.means = fmt::format("layers.{}.query_means", layer),
          .means_shape = {heads, shape.head_dim},
          .lengths = fmt::format("layers.{}.query_lengths", layer),
          .lengths_shape = {heads, static_cast<std::int64_t>(kvcache::plane_count(shape, layer))}};
}

std::vector<float> read_tensor(const SafetensorsFile& file, const std::string& name,
                               const Shape& shape) {
  const TensorView& tensor = file.tensor(name);
  require(tensor.dtype == DType::f32 && tensor.shape == shape,
          "{}: {} is {} [{}], but the model needs {} [{}]: winnow calibrate makes it for the model",
          file.path().string(), name, dtype_name(tensor.dtype), fmt::join(tensor.shape, ", "),
          dtype_name(DType::f32), fmt::join(shape, ", "));
  const auto values = tensor.as<float>();
  return {values.begin(), values.end()};
}

}  // namespace

void require_calibration(const std::filesystem::path& path) {
  require_replaceable(path, safetensors_of("a calibration", [](std::string_view name) {
                        return name.starts_with("layers.") &&
                               (name.ends_with(".query_means") || name.ends_with(".query_lengths"));
                      }));
}

void write_calibration(const std::filesystem::path& path, const kvcache::Calibration& calibration,
                       const kvcache::CacheShape& shape) {
  kvcache::validate(calibration, shape, path.string());
  TensorMap tensors;
  for (int layer = 0; layer < shape.layers; ++layer) {
    const kvcache::LayerCalibration& own = calibration.layers[static_cast<std::size_t>(layer)];
    const LayerTensors names = layer_tensors(shape, layer);
    tensors[names.means] = {DType::f32, names.means_shape,
                            std::as_bytes(std::span(own.means)).data()};
    tensors[names.lengths] = {DType::f32, names.lengths_shape,
                              std::as_bytes(std::span(own.lengths)).data()};
  }
  write_safetensors(path, tensors);
}

kvcache::Calibration read_calibration(const std::filesystem::path& path,
                                      const kvcache::CacheShape& shape) {
  const SafetensorsFile file(path);
  const auto expected = 2 * static_cast<std::size_t>(shape.layers);
  require(file.tensors().size() == expected,
          "{}: {} tensors, but statistics of the model's {} layers are {}: winnow calibrate makes "
          "them for the model",
          path.string(), file.tensors().size(), shape.layers, expected);
  kvcache::Calibration calibration;
  for (int layer = 0; layer < shape.layers; ++layer) {
    const LayerTensors names = layer_tensors(shape, layer);
    calibration.layers.push_back(
        {.means = read_tensor(file, names.means, names.means_shape),
         .lengths = read_tensor(file, names.lengths, names.lengths_shape)});
  }
  kvcache::validate(calibration, shape, path.string());
  return calibration;
}

}  // namespace winnow::engine
