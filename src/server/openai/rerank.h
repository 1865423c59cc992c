// POST /v1/rerank: scores how well documents answer a query.
#pragma once

#include <memory>
#include <string_view>

#include "server/http/http.h"

namespace winnow::server {

class Service;

/// Answers with a score of each document: the probability that the model says yes rather than no.
/// Throws ApiError that names the invalid field.
void rerank(Service& service, const HttpRequest& request, const std::shared_ptr<Reply>& reply);

}  // namespace winnow::server
