// From Oniguruma's regular expressions to PCRE2's.
#pragma once

#include <string>
#include <string_view>

namespace winnow {

/// `pattern`, written for Oniguruma (as in tokenizer.json), as PCRE2 with UTF and UCP must be given
/// it to match the same texts. The differences that matter to tokenizers:
///
/// - \s and \w are Unicode's White_Space and word characters; PCRE2's \s also takes U+180E.
/// - \p{Han} and the like are scripts, not script extensions.
/// - \p{L}, \p{M}, \p{N}, \p{P} and \p{S} are those of Unicode 16; PCRE2 10.42 knows Unicode 14.
///
/// Throws Error that begins with `where` for what PCRE2 would silently read as something else:
/// classes inside classes, intersections (&&), \h.
std::string to_pcre2_syntax(std::string_view pattern, std::string_view where);

}  // namespace winnow
