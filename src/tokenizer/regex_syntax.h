// Translates Oniguruma's expressions for PCRE2.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace winnow {

/// Translates `pattern`, written for Oniguruma (as in tokenizer.json), for PCRE2 with UTF and UCP
/// so that it matches the same texts; nullopt if it contains anything for which this is uncertain.
///
/// Supported are literals, classes without nested classes, groups that are not repeated as a whole,
/// look-arounds, greedy, lazy and possessive quantifiers, and classes that need a translation:
///
/// - \s and \w are Unicode's White_Space and word characters; PCRE2's \s also takes U+180E, and
/// Oniguruma's \w outside of a class also includes ² and similar characters of Latin-1.
/// - \p{Han} and the like are scripts, not script extensions.
/// - \p{L}, \p{M}, \p{N}, \p{P} and \p{S} are those of Unicode 16; PCRE2 10.42 has Unicode 14.
std::optional<std::string> to_pcre2_syntax(std::string_view pattern);

/// Rewrites `pattern` for an Oniguruma older than the one in Hugging Face's tokenizers: 6.9.8
/// has Unicode 14, not 16, and does not count symbols as punctuation.
std::string to_unicode_16(std::string_view pattern);

}  // namespace winnow
