#include "hub/gguf_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "checkpoint/gguf/split_name.h"

namespace winnow::hub {
namespace {

constexpr std::string_view kGguf = ".gguf";
constexpr const char* kStandardType = "Q4_K_M";

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// The file name without folders, part numbers and extension.
std::string bare_name(const std::string& file) {
  const auto split = gguf::parse_split_name(file);
  const std::string stem = split ? split->stem : file.substr(0, file.size() - kGguf.size());
  return stem.substr(stem.rfind('/') + 1);
}

/// Whether a file has the type `type`: "model-Q4_K_M.gguf", "model.q4_k_m.gguf", "Q4_K_M.gguf".
bool is_of_type(const std::string& file, const std::string& type) {
  const std::string name = lower(bare_name(file));
  const std::string end = lower(type);
  return name == end || name.ends_with("-" + end) || name.ends_with("." + end) ||
         name.ends_with("_" + end);
}

/// The files to choose from, without the later parts of split files.
std::vector<std::string> first_files(const std::vector<std::string>& files) {
  std::vector<std::string> firsts;
  std::ranges::copy_if(files, std::back_inserter(firsts), [](const std::string& file) {
    const auto split = gguf::parse_split_name(file);
    return is_gguf_model(file) && (!split || split->number == 1);
  });
  return firsts;
}

/// The files of `files` that match; empty: none.
std::vector<std::string> meant(const std::vector<std::string>& files, const std::string& wanted) {
  std::vector<std::string> found;
  std::ranges::copy_if(files, std::back_inserter(found), [&](const std::string& file) {
    return wanted.ends_with(kGguf) ? file == wanted : is_of_type(file, wanted);
  });
  // "UD-Q4_K_M" also ends with "Q4_K_M": prefer the shorter name.
  const auto size = [](const std::string& file) { return bare_name(file).size(); };
  std::ranges::stable_sort(found, {}, size);
  if (found.size() > 1 && size(found[0]) < size(found[1])) {
    found.resize(1);
  }
  return found;
}

}  // namespace

bool is_gguf_model(const std::string& name) {
  const std::string bare = lower(name.substr(name.rfind('/') + 1));
  return bare.ends_with(kGguf) && !bare.starts_with("mmproj") && !bare.starts_with("imatrix");
}

std::vector<std::string> choose_gguf(const std::vector<std::string>& files,
                                     const std::string& wanted, const std::string& where) {
  const std::vector<std::string> firsts = first_files(files);
  std::vector<std::string> found = firsts;
  if (!wanted.empty() || firsts.size() > 1) {
    found = meant(firsts, wanted.empty() ? kStandardType : wanted);
  }
  require(!firsts.empty(), "{}: there are no GGUF files", where);
  require(found.size() == 1, "{}: {} names {} of its GGUF files, expected one: {}", where,
          wanted.empty() ? kStandardType : wanted, found.empty() ? "none" : "several",
          fmt::join(found.empty() ? firsts : found, ", "));
  const auto split = gguf::parse_split_name(found.front());
  for (int number = 2; split && number <= split->count; ++number) {
    found.push_back(split->file(number));
    require(std::ranges::find(files, found.back()) != files.end(), "{}: {} is not there", where,
            found.back());
  }
  return found;
}

}  // namespace winnow::hub
