// RapidCheck with the number of cases stated in the test.
#pragma once

#include <rapidcheck.h>

#include <iostream>
#include <string>
#include <utility>

namespace winnow::testing {

/// rc::check() of `cases` random cases. The seed comes from the environment as usual (RC_PARAMS).
template <class Property>
bool holds(const std::string& what, int cases, Property&& property) {
  rc::detail::TestMetadata metadata;
  metadata.id = what;
  metadata.description = what;
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  params.maxSuccess = cases;
  std::cerr << "- " << what << '\n';
  const auto result = rc::detail::checkTestable(std::forward<Property>(property), metadata, params);
  rc::detail::printResultMessage(result, std::cerr);
  std::cerr << '\n';
  return result.template is<rc::detail::SuccessResult>();
}

}  // namespace winnow::testing
