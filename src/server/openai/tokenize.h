// /tokenize, /detokenize and /apply-template.
#pragma once

#include "server/http/http.h"

namespace winnow::server {

class Service;

/// Answers with the tokens of a text or of a chat. Throws ApiError.
HttpResponse tokenize(const Service& service, const HttpRequest& request);
/// Answers with the text of a chat's prompt, as llama.cpp does. Throws ApiError.
HttpResponse apply_template(const Service& service, const HttpRequest& request);
/// Answers with the text of tokens. Throws ApiError.
HttpResponse detokenize(const Service& service, const HttpRequest& request);

}  // namespace winnow::server
