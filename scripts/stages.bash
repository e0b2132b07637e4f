# Runs the stages of a long check, times each and prints a table at the end.
# Source it, call `stage NAME COMMAND…` for each, then `finish`.
#
# A stage that runs Go tests goes through `gotest`, which adds to the counts. A
# failed stage does not stop the rest: one run tells everything that is wrong.

stage_names=() stage_times=() stage_counts=() stage_results=()
total_passed=0 total_failed=0
work=$PWD/.cache/stages
rm -rf "$work" && mkdir -p "$work"

stage() { # NAME COMMAND…
	local name=$1 started=$SECONDS result=ok passed=- failed
	shift
	printf '\n── %s\n' "$name"
	rm -f "$work/counts"
	"$@" || result=FAILED
	if [ -s "$work/counts" ]; then
		read -r passed failed <"$work/counts"
		total_passed=$((total_passed + passed)) total_failed=$((total_failed + failed))
		passed="$passed/$((passed + failed))"
	elif [ "$result" = FAILED ]; then
		# A stage that broke before any test ran is itself one failure.
		total_failed=$((total_failed + 1))
	fi
	stage_names+=("$name") stage_times+=($((SECONDS - started)))
	stage_counts+=("$passed") stage_results+=("$result")
	printf '   %s: %s in %d s\n' "$name" "$result" $((SECONDS - started))
}

# gotest DIR ARGUMENTS… runs `go test -json` in a module and reports it.
gotest() {
	local dir=$1
	shift
	(cd "$dir" && GOWORK=off go test -json "$@" 2>&1) | "$work/testreport" -counts "$work/counts"
}

# pass NAME and not_checked NAME REASON note a gate without a command.
not_checked() {
	stage_names+=("$1") stage_times+=(0) stage_counts+=(-) stage_results+=("not checked: $2")
}

finish() {
	local i
	printf '\n%-28s %7s %11s  %s\n' stage seconds tests result
	for i in "${!stage_names[@]}"; do
		printf '%-28s %7d %11s  %s\n' "${stage_names[$i]}" "${stage_times[$i]}" "${stage_counts[$i]}" "${stage_results[$i]}"
	done
	printf '%-28s %7d\n\n%d passed, %d failed\n' total "$SECONDS" "$total_passed" "$total_failed"
	[ "$total_failed" = 0 ] && [ "$total_passed" -gt 0 ]
}
