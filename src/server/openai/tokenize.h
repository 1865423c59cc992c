// /tokenize and /detokenize.
#pragma once

#include <string_view>

#include "server/http/http.h"

namespace winnow::server {

class Service;

/// Answers with the tokens of a text or of a chat. Throws ApiError.
HttpResponse tokenize(const Service& service, std::string_view body);
/// Answers with the text of tokens. Throws ApiError.
HttpResponse detokenize(const Service& service, std::string_view body);

}  // namespace winnow::server
