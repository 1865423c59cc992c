#include "grammar/json_formats.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace winnow::grammar {
namespace {

// Each matches a subset of its RFC: where there are several notations, only the usual one. Every
// date that matches exists: February has 28 days, since the 29th does not exist in every year.
#define WINNOW_DATE                                                                        \
  "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]" \
  "[0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define WINNOW_TIME                                                                            \
  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):" \
  "[0-5][0-9])"
#define WINNOW_LABEL "[a-zA-Z0-9]{1,20}(?:-[a-zA-Z0-9]{1,20}){0,2}"
#define WINNOW_HOST WINNOW_LABEL "(?:\\." WINNOW_LABEL "){0,3}"
#define WINNOW_BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define WINNOW_HEX4 "[0-9a-fA-F]{1,4}"
#define WINNOW_PCHAR "(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})"
#define WINNOW_PATH "(?:/" WINNOW_PCHAR "*)*"
#define WINNOW_QUERY "(?:\\?(?:" WINNOW_PCHAR "|[/?])*)?(?:#(?:" WINNOW_PCHAR "|[/?])*)?"
#define WINNOW_AUTHORITY "(?:" WINNOW_HOST ")(?::[0-9]{1,4})?"
#define WINNOW_ATOM "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+"

constexpr std::pair<std::string_view, std::string_view> kFormats[] = {
    {"date", WINNOW_DATE},
    {"time", WINNOW_TIME},
    {"date-time", WINNOW_DATE "T" WINNOW_TIME},
    {"duration",
     "P(?:[0-9]{1,9}W|(?:[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?|[0-9]{1,9}M(?:[0-9]{1,9}D)?|"
     "[0-9]{1,9}D)(?:T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|"
     "[0-9]{1,9}S))?|T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|"
     "[0-9]{1,9}S))"},
    {"email", WINNOW_ATOM "(?:\\." WINNOW_ATOM ")*@" WINNOW_LABEL "(?:\\." WINNOW_LABEL "){1,3}"},
    {"idn-email",
     WINNOW_ATOM "(?:\\." WINNOW_ATOM ")*@" WINNOW_LABEL "(?:\\." WINNOW_LABEL "){1,3}"},
    {"hostname", WINNOW_HOST},
    {"idn-hostname", WINNOW_HOST},
    {"ipv4", WINNOW_BYTE "(?:\\." WINNOW_BYTE "){3}"},
    {"ipv6", "(?:" WINNOW_HEX4 ":){7}" WINNOW_HEX4 "|::(?:" WINNOW_HEX4 "(?::" WINNOW_HEX4
             "){0,5})?|(?:" WINNOW_HEX4 ":){1,6}:" WINNOW_HEX4},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"uri", "[a-zA-Z][a-zA-Z0-9+.-]*://" WINNOW_AUTHORITY WINNOW_PATH WINNOW_QUERY},
    {"iri", "[a-zA-Z][a-zA-Z0-9+.-]*://" WINNOW_AUTHORITY WINNOW_PATH WINNOW_QUERY},
    {"uri-reference",
     "(?:[a-zA-Z][a-zA-Z0-9+.-]*://" WINNOW_AUTHORITY ")?" WINNOW_PATH WINNOW_QUERY},
    {"iri-reference",
     "(?:[a-zA-Z][a-zA-Z0-9+.-]*://" WINNOW_AUTHORITY ")?" WINNOW_PATH WINNOW_QUERY},
    {"json-pointer", "(?:/(?:[^/~]|~[01])*)*"},
    {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^/~]|~[01])*)+)"},
    // Annotations without constraints: OpenAPI's for numbers and passwords, and pydantic's.
    {"password", ""},
    {"binary", ""},
    {"path", ""},
    {"file-path", ""},
    {"directory-path", ""},
    {"float", ""},
    {"double", ""},
};

}  // namespace

std::optional<std::string_view> format_pattern(std::string_view format) {
  const auto* found =
      std::ranges::find(kFormats, format, &std::pair<std::string_view, std::string_view>::first);
  return found == std::end(kFormats) ? std::nullopt : std::optional(found->second);
}

}  // namespace winnow::grammar
