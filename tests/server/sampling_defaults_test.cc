#include "server/sampling_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_testing.h"

namespace winnow::server {
namespace {

using ::testing::HasSubstr;

// The defaults of a model with this generation_config.json.
SamplingOptions defaults_of(const std::string& config, const SamplingOptions& otherwise) {
  const TempDir directory;
  directory.write("generation_config.json", config);
  return read_sampling_defaults(directory.path(), otherwise);
}

double temperature_of(const std::string& config) {
  return defaults_of(config, {.temperature = 0.7}).temperature;
}

TEST(SamplingDefaults, AModelThatDoesNotSampleIsGreedy) {
  EXPECT_EQ(temperature_of(R"({"do_sample": false})"), 0.0);
  EXPECT_EQ(temperature_of(R"({"do_sample": false, "temperature": 0.6})"), 0.0);
  const SamplingOptions others = defaults_of(R"({"do_sample": false, "top_k": 20})", {});
  EXPECT_EQ(others.top_k, 20) << "for requests that set a temperature";
}

TEST(SamplingDefaults, OthersKeepTheirTemperature) {
  EXPECT_EQ(temperature_of("{}"), 0.7);
  EXPECT_EQ(temperature_of(R"({"do_sample": null})"), 0.7);
  EXPECT_EQ(temperature_of(R"({"do_sample": true})"), 0.7);
  EXPECT_EQ(temperature_of(R"({"do_sample": true, "temperature": 0.6})"), 0.6);
}

TEST(SamplingDefaults, WrongValuesAreNamed) {
  EXPECT_THAT(winnow::error_of([] { (void)temperature_of(R"({"do_sample": "no"})"); }),
              HasSubstr("generation_config.json: do_sample is \"no\"; expected true or false"));
  EXPECT_THAT(
      winnow::error_of([] { (void)temperature_of(R"({"do_sample": false, "temperature": -1})"); }),
      HasSubstr("generation_config.json: temperature is -1; expected a number"));
}

}  // namespace
}  // namespace winnow::server
