// POST /v1/prefill
#pragma once

#include <memory>

#include "server/http/http.h"

namespace winnow::server {

class Service;

/// Answers with the state of a prompt's cache, without its last token, in the format of a state
/// file. Throws ApiError that names the invalid field.
void prefill(Service& service, const HttpRequest& request, const std::shared_ptr<Reply>& reply);

}  // namespace winnow::server
