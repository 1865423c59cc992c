#include "server/kv_events/kv_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace winnow::server {
namespace {

std::string endpoint_error(std::string_view endpoint) {
  try {
    check_endpoint("--kv-events", endpoint);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(KvEventEndpoints, AreThoseThatRoutersCanReach) {
  for (const char* endpoint : {"", "tcp://*:5557", "tcp://[::]:1", "tcp://10.0.0.1:65535",
                               "tcp://router.local:5557", "ipc:///run/events"}) {
    EXPECT_EQ(endpoint_error(endpoint), "") << endpoint;
  }
  for (const char* endpoint : {"foo", "tcp://*", "tcp://*:0", "tcp://*:99999", "tcp://:5557",
                               "tcp://*:55x", "ipc://", "udp://*:5557"}) {
    EXPECT_THAT(endpoint_error(endpoint),
                ::testing::AllOf(::testing::StartsWith(std::string("--kv-events ") + endpoint),
                                 ::testing::HasSubstr("expected tcp://HOST:PORT")))
        << endpoint;
  }
}

TEST(KvEventEndpoints, AreBoundOrConnectedToAsByVllm) {
  for (const char* endpoint : {"tcp://*:5557", "tcp://[::]:5557", "ipc:///run/events"}) {
    EXPECT_TRUE(binds_endpoint(endpoint)) << endpoint;
  }
  for (const char* endpoint : {"tcp://127.0.0.1:5557", "tcp://0.0.0.0:5557", "tcp://router:5557"}) {
    EXPECT_FALSE(binds_endpoint(endpoint)) << endpoint;
  }
}

}  // namespace
}  // namespace winnow::server
