#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/service.h"

namespace winnow::server {
namespace {

std::string status_of(const HttpResponse& response) {
  return nlohmann::json::parse(response.body).at("status");
}

TEST(Health, TellsWhyNoRequestIsTaken) {
  const HttpResponse fine = health_of(/*refusing=*/false, "");
  EXPECT_EQ(fine.status, 200);
  EXPECT_EQ(status_of(fine), "ok");
  const HttpResponse closing = health_of(/*refusing=*/true, "");
  EXPECT_EQ(closing.status, 503);
  EXPECT_EQ(status_of(closing), "shutting down");
}

TEST(Health, AFailedEngineIsNotHealthy) {
  for (const bool refusing : {false, true}) {  // the program ends soon afterwards
    const HttpResponse response = health_of(refusing, "the device does not answer");
    EXPECT_EQ(response.status, 503);
    EXPECT_EQ(status_of(response), "the engine has failed");
  }
}

}  // namespace
}  // namespace winnow::server
