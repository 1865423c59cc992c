// The methods by kind; find_method looks through all of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>

#include "tokenizer/jinja/runtime.h"
#include "tokenizer/jinja/value.h"

namespace winnow::jinja {

using TextMethod = Value (*)(Runtime&, std::string_view, const Arguments&);

template <class Method>
struct Named {
  std::string_view name;
  Method method;
};

template <class Method, std::size_t n>
Method find_in(const Named<Method> (&table)[n], std::string_view name) {
  const auto* found = std::find_if(std::begin(table), std::end(table),
                                   [&](const Named<Method>& entry) { return entry.name == name; });
  return found == std::end(table) ? nullptr : found->method;
}

/// String methods for layout: center, format, zfill ... nullptr when there is none.
TextMethod find_layout_method(std::string_view name);

}  // namespace winnow::jinja
