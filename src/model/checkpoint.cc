#include "model/checkpoint.h"

#include "base/error.h"
#include "checkpoint/json.h"
#include "checkpoint/weight_files.h"
#include "model/checkpoint_parts.h"
#include "model/joined_tensors.h"
#include "model/text_part.h"

namespace winnow::model {

Checkpoint Checkpoint::open(const std::filesystem::path& directory, std::optional<int> context) {
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  checkpoint.spec_ = read_spec(directory, context);
  const WeightFiles weights(directory);
  const auto locate = [&](const std::string& name) { return weights.locate(name); };
  checkpoint.files_ = weights.files();
  for (const auto& [name, shape] : expected_tensors(checkpoint.spec_)) {
    weights.require_readable(name);
  }
  checkpoint.tensors_ =
      split_joined(checkpoint.spec_, detail::text_part(weights.tensors()), locate);
  detail::check_tensors(locate, checkpoint.spec_, checkpoint.tensors_);
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
