// The commit that this program was built from.
#pragma once

#include <string>
#include <string_view>

namespace winnow {

/// The first eight digits of the commit of the checkout that CMake configured; "" without git.
std::string_view build_commit();

/// `version`, followed by " (COMMIT)" if the commit is known.
std::string with_build_commit(std::string_view version);

}  // namespace winnow
