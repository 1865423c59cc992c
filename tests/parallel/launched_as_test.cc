// What launchers tell the processes that they start.
#include "parallel/launched_as.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/error.h"
#include "parallel/tcp_ranks.h"

namespace winnow::parallel {
namespace {

using Variables = std::map<std::string, std::string>;

Environment environment_of(const Variables& variables) {
  return [variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

std::optional<LaunchedAs> read(const Variables& variables, bool has_mpi = true) {
  return launched_as(environment_of(variables), has_mpi);
}

Variables operator+(Variables a, const Variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}

const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "3"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}};
const Variables kSlurm{
    {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_LOCALID", "0"}};
const Variables kPlain{
    {"RANK", "5"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};
const Variables kTorchrun = kPlain + Variables{{"LOCAL_RANK", "2"},
                                               {"LOCAL_WORLD_SIZE", "4"},
                                               {"TORCHELASTIC_RUN_ID", "run 7"},
                                               {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

TEST(LaunchedAs, ReadsTheVariablesOfEachLauncher) {
  EXPECT_EQ(read(kOpenMpi), (LaunchedAs{3, 4, 1, Transport::mpi}));
  EXPECT_EQ(read(kSlurm), (LaunchedAs{1, 2, 0, Transport::mpi}));
  const Variables mpich{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  EXPECT_EQ(read(mpich), (LaunchedAs{1, 2, std::nullopt, Transport::mpi}));
  EXPECT_EQ(read(mpich + Variables{{"MPI_LOCALRANKID", "1"}})->local_rank, 1);
  EXPECT_EQ(read(mpich + Variables{{"PMI_LOCAL_RANK", "0"}})->local_rank, 0);
  EXPECT_EQ(read(kPlain), (LaunchedAs{5, 8, std::nullopt, Transport::tcp}));
  EXPECT_EQ(read(kTorchrun), (LaunchedAs{5, 8, 2, Transport::tcp}));
}

TEST(LaunchedAs, NeedsSeveralRanks) {
  EXPECT_EQ(read({}), std::nullopt);
  EXPECT_EQ(read({{"RANK", "0"}}), std::nullopt);
  EXPECT_EQ(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), std::nullopt);
  EXPECT_EQ(read({{"RANK", "first"}, {"WORLD_SIZE", "2"}}), std::nullopt);
}

// Scripts set RANK from the variables of mpirun. torchrun is started once per machine by srun.
TEST(LaunchedAs, ChoosesAmongSeveral) {
  EXPECT_EQ(read(kOpenMpi + kPlain)->transport, Transport::mpi);
  EXPECT_EQ(read(kOpenMpi + kPlain, /*has_mpi=*/false)->transport, Transport::tcp);
  EXPECT_EQ(read(kOpenMpi, /*has_mpi=*/false)->transport,
            Transport::mpi);  // joining says what to do
  EXPECT_EQ(read(kSlurm + kTorchrun), read(kTorchrun));
}

TEST(TcpGroup, IsWhatTheEnvironmentSays) {
  const TcpGroup plain = tcp_group(*read(kPlain), environment_of(kPlain));
  EXPECT_EQ(plain.rank, 5);
  EXPECT_EQ(plain.size, 8);
  EXPECT_EQ(plain.host, "10.0.0.1");
  EXPECT_EQ(plain.port, 29500);
  EXPECT_FALSE(plain.one_machine);
  const TcpGroup torchrun = tcp_group(*read(kTorchrun), environment_of(kTorchrun));
  EXPECT_EQ(torchrun.port, 29501);  // its agent's store has the other
  EXPECT_EQ(torchrun.job, "run 7");
  EXPECT_FALSE(torchrun.one_machine);
}

TEST(TcpGroup, NamesTheVariableThatIsWrong) {
  const auto message = [](Variables variables) {
    try {
      tcp_group(*read(variables), environment_of(variables));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  Variables without = kPlain;
  without.erase("MASTER_ADDR");
  EXPECT_THAT(message(without), ::testing::HasSubstr("MASTER_ADDR is not"));
  without = kPlain;
  without["MASTER_PORT"] = "http";
  EXPECT_EQ(message(without), "MASTER_PORT=http: expected a port");
  without["MASTER_PORT"] = "70000";
  EXPECT_EQ(message(without), "MASTER_PORT=70000: expected a port");
  without = kPlain;
  without["RANK"] = "8";
  EXPECT_EQ(message(without), "RANK=8: expected 0 to 7, as WORLD_SIZE is 8");
}

}  // namespace
}  // namespace winnow::parallel
