// What an expression that is written for Oniguruma means to PCRE2.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace winnow {

/// `pattern`, written for Oniguruma (as in tokenizer.json), as PCRE2 with UTF and UCP must be given
/// it to match the same texts; nullopt where it holds anything of which that is not certain.
///
/// Taken are literals, classes without classes inside, groups that are not repeated as a whole,
/// look-arounds, greedy, lazy and possessive quantifiers, and the classes that need a translation:
///
/// - \s and \w are Unicode's White_Space and word characters; PCRE2's \s also takes U+180E, and
///   Oniguruma's \w outside of a class also ² and its like in Latin-1.
/// - \p{Han} and the like are scripts, not script extensions.
/// - \p{L}, \p{M}, \p{N}, \p{P} and \p{S} are those of Unicode 16; PCRE2 10.42 knows Unicode 14.
std::optional<std::string> to_pcre2_syntax(std::string_view pattern);

/// `pattern` for an Oniguruma older than the one that Hugging Face's tokenizers comes with: 6.9.8
/// knows Unicode 14, not 16, and does not count symbols as punctuation.
std::string to_unicode_16(std::string_view pattern);

}  // namespace winnow
