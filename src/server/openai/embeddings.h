// POST /v1/embeddings
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http.h"

namespace winnow::server {

class Service;

/// Answers with a vector for each text. Throws ApiError that names the invalid field.
void embed(Service& service, const HttpRequest& request, const std::shared_ptr<Reply>& reply);

/// The first `dimensions` values of a state, scaled to length 1 if `normalises`.
std::vector<float> embedding_of(std::vector<float> state, std::size_t dimensions, bool normalises);

/// Little-endian floats in base64, an encoding that OpenAI's clients request.
std::string base64_of(const std::vector<float>& values);

}  // namespace winnow::server
