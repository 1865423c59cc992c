#include "model/checkpoint.h"

#include "base/error.h"
#include "checkpoint/json.h"
#include "checkpoint/weight_files.h"
#include "model/checkpoint_parts.h"

namespace winnow::model {

Checkpoint Checkpoint::open(const std::filesystem::path& directory) {
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  checkpoint.spec_ = read_spec(directory);
  const WeightFiles weights(directory);
  checkpoint.files_ = weights.files();
  checkpoint.tensors_ = weights.tensors();
  for (const auto& [name, shape] : expected_tensors(checkpoint.spec_)) {
    weights.require_readable(name);
  }
  detail::check_tensors([&](const std::string& name) { return weights.locate(name); },
                        checkpoint.spec_, checkpoint.tensors_);
  return checkpoint;
}

bool Checkpoint::has(std::string_view name) const {
  return tensors_.find(name) != tensors_.end();
}

const TensorView& Checkpoint::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  require(found != tensors_.end(), "{}: tensor {} is missing", directory_.string(),
          in_quotes(name));
  return found->second;
}

std::int64_t Checkpoint::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& [name, shape] : expected_tensors(spec_)) {
    count += element_count(shape);
  }
  for (const auto& [name, shape] : optional_tensors(spec_)) {
    count += has(name) ? element_count(shape) : 0;
  }
  return count;
}

}  // namespace winnow::model
