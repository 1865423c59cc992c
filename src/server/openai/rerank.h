// POST /v1/rerank: which documents answer a query.
#pragma once

#include <memory>
#include <string_view>

#include "server/http/http.h"

namespace winnow::server {

class Service;

/// Answers with a score of each document: how much likelier the model says yes than no. Throws
/// ApiError that names the field at fault.
void rerank(Service& service, const HttpRequest& request, const std::shared_ptr<Reply>& reply);

}  // namespace winnow::server
