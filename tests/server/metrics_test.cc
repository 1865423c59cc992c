#include "server/metrics.h"

#include <gtest/gtest.h>

#include <string>

namespace winnow::server {
namespace {

std::string page_of(const Metrics& metrics) {
  return metrics.render({}, {}, {}, {.blocks = {}, .vllm_name = "m"});
}

// increase() and rate() do not see a counter that appears with its first event.
TEST(Metrics, CountersOfFailuresAreThereBeforeTheFirst) {
  const std::string page = page_of({});
  for (const std::string line : {
           "winnow_requests_total{outcome=\"completed\"} 0\n",
           "winnow_requests_total{outcome=\"cancelled\"} 0\n",
           "winnow_requests_total{outcome=\"refused\"} 0\n",
           "winnow_requests_total{outcome=\"failed\"} 0\n",
           "winnow_http_requests_total{route=\"/v1/completions\",status=\"200\"} 0\n",
           "winnow_http_requests_total{route=\"/v1/chat/completions\",status=\"429\"} 0\n",
           "winnow_http_requests_total{route=\"/v1/messages\",status=\"500\"} 0\n",
           "winnow_http_requests_total{route=\"/v1/responses\",status=\"503\"} 0\n",
           "vllm:request_success_total{engine=\"0\",model_name=\"m\",finished_reason=\"error\"} 0",
       }) {
    EXPECT_NE(page.find(line), std::string::npos) << line;
  }
}

TEST(Metrics, AnEventCountsOnce) {
  Metrics metrics;
  metrics.count_request("failed", {});
  metrics.count_http("/v1/completions", 429);
  metrics.count_http("/v1/completions", 404);
  const std::string page = page_of(metrics);
  EXPECT_NE(page.find("{outcome=\"failed\"} 1\n"), std::string::npos);
  EXPECT_NE(page.find("{route=\"/v1/completions\",status=\"429\"} 1\n"), std::string::npos);
  EXPECT_NE(page.find("{route=\"/v1/completions\",status=\"404\"} 1\n"), std::string::npos);
}

// changes() of it counts restarts.
TEST(Metrics, TellWhenTheProcessStarted) {
  const std::string page = page_of({});
  constexpr std::string_view kName = "\nprocess_start_time_seconds ";
  const auto at = page.find(kName);
  ASSERT_NE(at, std::string::npos);
  EXPECT_GT(std::stod(page.substr(at + kName.size())), 1.7e9);
}

}  // namespace
}  // namespace winnow::server
