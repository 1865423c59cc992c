// Whether two answers to a mathematical problem mean the same.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace winnow::answers {

/// The answer that a worked solution states: the content of the last \boxed{} (or \fbox{}); else
/// the text after the last "answer is"; else, if `number` is set, the last number; else
/// "".
std::string stated_answer(std::string_view text, bool number);

/// The number after the last "####" (GSM8K), with commas removed; "" if there is none.
std::string marked_answer(std::string_view text);

/// The last number of a text: "-1,234.5" -> "-1234.5"; "" when there is none.
std::string last_number(std::string_view text);

/// The value of an arithmetic expression in plain text or LaTeX: integers, decimals, thousands
/// separated by commas, fractions (1/2, \frac{1}{2}, \frac12, mixed numbers), powers, square roots,
/// \pi, per cent. Ignores units, \text{}, dollars and degrees. nullopt if the text is anything
/// else.
std::optional<double> value_of(std::string_view expression);

/// Whether `answer` equals `expected`: equal values; or tuples, sets and intervals with equal parts
/// (sets in any order); or texts that differ only in spelling (spaces, \left, \dfrac, units, "x =",
/// trailing dots).
bool answers_agree(std::string_view answer, std::string_view expected);

}  // namespace winnow::answers
