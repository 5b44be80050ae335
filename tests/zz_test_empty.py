import cProfile, pstats, io, sys, time
def test_e():
    from robust_diffusion.report.page import render_page
    render_page([])
    t=time.process_time(); render_page([]); t=time.process_time()-t
    pr=cProfile.Profile(); pr.enable(); render_page([]); pr.disable()
    s=io.StringIO(); pstats.Stats(pr,stream=s).sort_stats('tottime').print_stats(22); pstats.Stats(pr,stream=s).sort_stats('cumulative').print_stats(45)
    open('/tmp/empty.txt','w').write(str(t)+s.getvalue())
