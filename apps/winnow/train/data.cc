#include "apps/winnow/train/data.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "apps/winnow/interrupt.h"
#include "apps/winnow/output.h"
#include "apps/winnow/progress.h"
#include "base/error.h"

namespace winnow::cli {

train::TokenizeResult tokenize_with_progress(train::TokenizeOptions options,
                                             const model::ModelSpec& config,
                                             const std::filesystem::path& directory) {
  std::int64_t total = 0;
  for (const auto& file : options.files) {
    std::error_code ignored;
    total += static_cast<std::int64_t>(std::filesystem::file_size(file, ignored));
  }
  ProgressBar progress("tokenising", total, "bytes");
  options.on_progress = [&progress](std::int64_t done, std::int64_t) {
    progress.update(done);
    stop_if_interrupted();
    return true;
  };
  auto result = train::tokenize_files(options, config, directory);
  progress.clear();
  for (const std::string& complaint : result.complaints) {
    print_note(fmt::format("skipped {}\n", complaint));
  }
  if (!result.ignored.empty()) {
    std::vector<std::string> names;
    std::ranges::transform(result.ignored, std::back_inserter(names),
                           [](const std::string& name) { return in_quotes(name); });
    print_note(fmt::format("ignored in the lines: {}\n", fmt::join(names, ", ")));
  }
  print_note(fmt::format("{}: {} documents, {} tokens, {} lines skipped\n", directory.string(),
                         grouped(result.documents), grouped(result.tokens),
                         grouped(result.malformed)));
  return result;
}

namespace {

bool are_shards(const train::TokenizeOptions& options) {
  std::error_code ignored;
  return options.files.size() == 1 && std::filesystem::is_directory(options.files[0], ignored);
}

}  // namespace

nlohmann::ordered_json origin_of(const train::TokenizeOptions& options) {
  return are_shards(options) ? train::Shards(options.files[0]).origin()
                             : train::data_origin(options);
}

train::Shards open_data(const train::TokenizeOptions& options, const model::ModelSpec& config,
                        const std::filesystem::path& cache) {
  if (are_shards(options)) {
    train::Shards shards(options.files[0]);
    train::TokenizeOptions none = options;
    none.files.clear();
    require(shards.origin().value("tokenizer", nlohmann::ordered_json()) ==
                train::data_origin(none)["tokenizer"],
            "{}: it was tokenised with another tokenizer than {} has", options.files[0].string(),
            options.model.string());
    return shards;
  }
  if (!train::Shards::hold(cache, train::data_origin(options))) {
    tokenize_with_progress(options, config, cache);
  }
  return train::Shards(cache);
}

}  // namespace winnow::cli
