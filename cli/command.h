// The subcommands and what they have in common.
#pragma once

#include <string>
#include <vector>

namespace bucketwise {

// Exit codes of every subcommand.
constexpr int exit_done = 0;
constexpr int exit_failed = 1;
constexpr int exit_bad_input = 2;

// Wrong use of the command line; exits with exit_bad_input.
struct UsageError {
    std::string message;
};

// Runs `bucketwise ARGUMENTS...` and returns the exit code. Messages go to standard error, each one
// line: "bucketwise: ...".
int run_command_line(const std::vector<std::string>& arguments);

// bucketwise predict and its like; each in the file of its name.
int run_predict(const std::vector<std::string>& arguments);
int run_sweep(const std::vector<std::string>& arguments);
int run_measure(const std::vector<std::string>& arguments);
int run_calibrate(const std::vector<std::string>& arguments);
int run_compare(const std::vector<std::string>& arguments);
int run_validate(const std::vector<std::string>& arguments);
int run_link(const std::vector<std::string>& arguments);
int run_bench(const std::vector<std::string>& arguments);
int run_import(const std::vector<std::string>& arguments);

int run_completion(const std::vector<std::string>& arguments);
int run_man(const std::vector<std::string>& arguments);

// bucketwise bench allreduce and its like, likewise.
int run_bench_allreduce(const std::vector<std::string>& arguments);
int run_bench_compute(const std::vector<std::string>& arguments);
int run_bench_bucketed(const std::vector<std::string>& arguments);
int run_bench_compare_ddp(const std::vector<std::string>& arguments);
int run_bench_ddp_strategies(const std::vector<std::string>& arguments);
int run_bench_copies(const std::vector<std::string>& arguments);
int run_bench_training(const std::vector<std::string>& arguments);
int run_bench_syncbn(const std::vector<std::string>& arguments);

// bucketwise link list and its like, likewise.
int run_link_list(const std::vector<std::string>& arguments);
int run_link_show(const std::vector<std::string>& arguments);

// bucketwise import hf and its like, likewise.
int run_import_hf(const std::vector<std::string>& arguments);
int run_import_kineto(const std::vector<std::string>& arguments);
int run_import_nccl_tests(const std::vector<std::string>& arguments);

}  // namespace bucketwise
