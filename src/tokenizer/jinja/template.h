// Jinja templates, the part of the language that chat templates use.
// https://jinja.palletsprojects.com/templates/
//
// The environment is the one in which Hugging Face renders chat templates: trim_blocks and
// lstrip_blocks, the tags break, continue and generation, its tojson, raise_exception and
// strftime_now; no escaping; no mutable values except namespaces.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/jinja/value.h"

namespace winnow::jinja {

/// A compiled template. Immutable, usable from many threads.
class Template {
 public:
  /// Throws Error("<name>:<line>: ...") for source that is wrong or not supported.
  Template(std::string_view source, std::string name);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  using Variables = std::vector<std::pair<std::string, Value>>;

  /// Throws Error("<name>:<line>: ...") for any error, including raise_exception, and when the
  /// template nests too deeply or takes too much time or memory. `now` is the time of strftime_now.
  [[nodiscard]] std::string render(Variables variables, std::time_t now) const;

 private:
  struct Tree;
  std::string name_;
  std::unique_ptr<const Tree> tree_;
};

}  // namespace winnow::jinja
